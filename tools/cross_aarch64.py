#!/usr/bin/env python3
"""Builds the engine for AArch64 and runs it under an emulator: the lanes at every level, and ids of small tokenizers.

Needs Debian's g++-aarch64-linux-gnu and qemu-user-static (or the same tools by other names: --compiler, --emulator).
The ids are held to those of the installed package on this machine, which other tests hold to the reference. The Python
module is not built: an interpreter of the other processor would be needed. Speed under an emulator says nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from toktier import _native
from toktier.program.compile import compile_tokenizer

ROOT = Path(__file__).resolve().parent.parent
LEVELS = ("baseline", "neon")
UNITS = (
    *("word ", "don't ", "x = 1;\n", "    ", "\t\n", "12345 ", "--------", "\u2028", "e\u0301", "é", "\u212b"),
    *("文字列です。", "か\u3099", "한국어 ", "жизнь ", "กำลัง", "👩‍🚀 "),
    *("<|endoftext|>", "<s>", "</s>", "[MASK] ", "<|im_start|>user\n"),
)


def checksum(ids: list[int]) -> str:
    """As native/tests/encode_file.cpp prints it."""
    value = 0xCBF29CE484222325
    for number in ids:
        value = (value ^ number) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{len(ids)} ids, checksum {value:016x}"


def build(tree: Path, compiler: str) -> Path:
    """The directory of the programs."""
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": compiler,
        "CMAKE_EXE_LINKER_FLAGS": "-static",
        "TOKTIER_PYTHON": "OFF",
    }
    flags = [f"-D{name}={value}" for name, value in settings.items()]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))  # cmake of a venv
    cmake = shutil.which("cmake", path=path) or "cmake"
    environment = {**os.environ, "PATH": path}
    subprocess.run(
        [cmake, "-S", ROOT, "-B", tree, "-G", "Ninja", *flags], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    targets = ["--target", "encode_file", "compare_levels"]
    subprocess.run([cmake, "--build", tree, *targets], check=True, stdout=subprocess.DEVNULL, env=environment)
    return tree / "native"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--compiler", default="aarch64-linux-gnu-g++")
    parser.add_argument("--emulator", default="qemu-aarch64-static")
    parser.add_argument("--tree", type=Path, default=ROOT / "build" / "aarch64")
    parser.add_argument("--if-there", action="store_true", help="end with 0 where compiler or emulator are missing")
    options = parser.parse_args()
    missing = [tool for tool in (options.compiler, options.emulator) if shutil.which(tool) is None]
    if missing:
        print(f"cross_aarch64: not run, there is no {' and no '.join(missing)}")
        sys.exit(0 if options.if_there else 2)
    programs = build(options.tree, options.compiler)
    subprocess.run([options.emulator, programs / "compare_levels", "300"], check=True)
    text = "".join(random.Random(11).choices(UNITS, k=20_000))
    with tempfile.TemporaryDirectory() as scratch:
        text_file = Path(scratch) / "text"
        text_file.write_text(text, encoding="utf-8", newline="")
        for source in sorted((ROOT / "tests/data/tokenizers").glob("*.json")):
            image = compile_tokenizer(source.read_bytes())
            program = Path(scratch) / "program"
            program.write_bytes(image)
            wanted = checksum(_native.EncoderBase(_native.Program(image)).encode(text).ids)
            for level in LEVELS:
                line = [options.emulator, programs / "encode_file", program, text_file, "1", "-", level]
                shown = subprocess.run(line, check=True, capture_output=True, text=True).stdout
                if wanted not in shown:
                    sys.exit(f"cross_aarch64: {source.stem} at level {level}: {shown.strip()}, wanted {wanted}")
            print(f"cross_aarch64: {source.stem}: {wanted}")


if __name__ == "__main__":
    main()
