"""Asks NVML for driver and devices, alone in a process: `python gpu_probe.py` prints one JSON object.

A driver can hang in the kernel, where no deadline of a thread reaches; whoever started this process stops waiting.
NVML is called through ctypes, so no binding need be installed; it makes no CUDA context. No UUID, serial number or
process of others is asked for. Imports nothing of toktier and runs without site packages.
"""

import ctypes
import json
import sys

LIBRARY = "libnvidia-ml.so.1"
TEXT_BYTES = 96
MAX_DEVICES = 256


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Refused(Exception):
    pass


def call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = int(getattr(library, name)(*arguments))
    if code:
        raise Refused(f"{name}: {_error(library, code)}")


def _error(library: ctypes.CDLL, code: int) -> str:
    library.nvmlErrorString.restype = ctypes.c_char_p
    text = library.nvmlErrorString(code)
    return text.decode("utf-8", "replace") if text else f"error {code}"


def text_of(library: ctypes.CDLL, name: str, *handle: object) -> str:
    buffer = ctypes.create_string_buffer(TEXT_BYTES)
    call(library, name, *handle, buffer, TEXT_BYTES)
    return buffer.value.decode("utf-8", "replace")


def device(library: ctypes.CDLL, index: int) -> "dict[str, object]":
    handle = ctypes.c_void_p()
    call(library, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
    major, minor = ctypes.c_int(), ctypes.c_int()
    call(library, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    memory = _Memory()
    call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return {
        "index": index,
        "name": text_of(library, "nvmlDeviceGetName", handle),
        "architecture": f"sm_{major.value}{minor.value}",
        "memory_bytes": memory.total,
    }


def look() -> "dict[str, object]":
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return {"problem": f"{LIBRARY} cannot be loaded"}
    try:
        call(library, "nvmlInit_v2")
        version, count = ctypes.c_int(), ctypes.c_uint()
        call(library, "nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
        call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return {
            "driver_version": text_of(library, "nvmlSystemGetDriverVersion"),
            "cuda_driver_version": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "devices": [device(library, index) for index in range(min(count.value, MAX_DEVICES))],
        }
    except (Refused, AttributeError) as error:  # AttributeError: a library without the function
        return {"problem": str(error)}


if __name__ == "__main__":
    json.dump(look(), sys.stdout)
