"""A libnvidia-ml.so.1 that shows what a test says: an sm_90 and an sm_86 device, a refusal, or a driver that hangs.

Compiled with the compiler that builds the project. Not here: NVML as a whole; only what `gpu_probe` calls.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static const char *names[] = {"NVIDIA H200", "NVIDIA GeForce RTX 3090"};
static const int major[] = {9, 8}, minor[] = {0, 6};
int nvmlInit_v2(void) {
  const char *mode = getenv("NVML_STUB");
  if (mode && !strcmp(mode, "hang")) for (;;) sleep(60);
  if (mode && !strcmp(mode, "crash")) abort();
  return mode && !strcmp(mode, "mismatch") ? 18 : 0;
}
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { snprintf(out, n, "570.86.15"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 12080; return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) {
  const char *mode = getenv("NVML_STUB");
  *out = mode && !strcmp(mode, "none") ? 0 : 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out) { *out = (void *)(size_t)(i + 1); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) {
  *a = major[(size_t)h - 1]; *b = minor[(size_t)h - 1]; return 0;
}
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { m[0] = (unsigned long long)(size_t)h << 30; return 0; }
int nvmlDeviceGetName(void *h, char *out, unsigned n) { snprintf(out, n, "%s", names[(size_t)h - 1]); return 0; }
"""

DEVICES = [
    {"index": 0, "name": "NVIDIA H200", "architecture": "sm_90", "memory_bytes": 1 << 30},
    {"index": 1, "name": "NVIDIA GeForce RTX 3090", "architecture": "sm_86", "memory_bytes": 2 << 30},
]


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build(directory: Path) -> Path:
    """A directory for LD_LIBRARY_PATH."""
    found = compiler()
    assert found is not None
    source = directory / "nvml_stub.c"
    source.write_text(_SOURCE)
    subprocess.run([found, "-shared", "-fPIC", "-o", str(directory / "libnvidia-ml.so.1"), str(source)], check=True)
    return directory


def system_root(directory: Path) -> Path:
    """A root in which the kernel shows an NVIDIA driver."""
    version = directory / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15\n")
    return directory
