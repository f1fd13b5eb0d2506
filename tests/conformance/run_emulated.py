"""The emulated kernels of every real artifact against the installed reference; prints and writes what was compared.

python -m tests.conformance.run_emulated [--artifact X ...] [--material Y ...] [--out DIR] [--workers N]

What DIR/ARTIFACT.json already holds for the same kernels, tables, reference and seeds is not run again. Exit 1 on a
mismatch, whose shortest text is shown, or when the device served nothing.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers

from tests.conformance import emulated_texts
from tests.conformance.corpus import all_corpora, texts
from tests.conformance.emulated import SEEDS, Counts, NotTaken, Subject, by_host, compare
from tests.conformance.emulated_texts import Text, class_strings
from tests.support.material import ROOT, SHARED, Artifacts, lines, load_script
from toktier import _native
from toktier.certify.hostile_texts import hostile_texts

CORPUS_BYTES = 200_000  # of each corpus for each artifact
CASE_BYTES = 1 << 16
HOSTILE_TEXTS = 500
SANITIZED_BYTES = 5_500  # of each artifact: one tile and a part of the next
SANITIZERS = ("asan", "tsan")
SOURCES = (".h", ".cuh", ".cu", ".py")
Run = Callable[["Bench"], Counts]


class Bench:
    """One artifact with what is run on it."""

    def __init__(self, shared: Path, path: Path, seeds: Sequence[int]) -> None:
        self.shared, self.name, self.seeds = shared, path.stem, seeds
        self.data = path.read_bytes()
        self.subject = Subject(self.data)

    @functools.cached_property
    def cases(self) -> list[dict[str, Any]]:
        """Those of the case file that are text of at most CASE_BYTES, and whose ids are not left to chance."""
        expand = load_script(self.shared / "cases" / "recipe.py").expand
        found = []
        for line in (self.shared / "cases" / "ids.jsonl").read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            if case["artifact"] == self.name and "at random" not in case.get("note", ""):
                case["text"] = expand(case)
                if _is_text(case["text"]) and len(case["text"].encode()) <= CASE_BYTES:
                    found.append(case)
        return found

    def run_cases(self) -> Counts:
        return compare(self.subject, [Text(case["id"], case["text"]) for case in self.cases], self.seeds)

    def run_cases_by_host(self) -> Counts:
        match = load_script(self.shared / "cases" / "check.py").match
        expected = {case["id"]: case["expected"] for case in self.cases}

        def agrees(text: Text, special: bool, ids: list[int]) -> bool:
            wanted = expected[text.name]
            one = wanted["true"] if special and wanted["true"] != "same" else wanted["false"]
            if isinstance(one, dict) and "by_version" in one:
                one = one["by_version"][tokenizers.__version__]
            return bool(match(ids, one))

        return by_host(self.subject, [Text(case["id"], case["text"]) for case in self.cases], agrees)

    def run_corpus(self, corpus: str) -> Counts:
        chosen = texts(self.shared, corpus, self.subject.reference, CORPUS_BYTES)
        return compare(self.subject, [Text(name, text) for name, text in chosen], self.seeds)

    def run_hostile(self) -> Counts:
        added = self.subject.added
        chosen = [*emulated_texts.runs(), *emulated_texts.chains(), *emulated_texts.tokens_at_edges(added)]
        chosen += [Text("hostile", text) for text in hostile_texts(added, HOSTILE_TEXTS, self.name)]
        return compare(self.subject, chosen, self.seeds)

    def run_class_strings(self) -> Counts:
        """Without the normalizer, which would have characters of some classes left to the CPU."""
        subject = Subject(self.data, normalizer=None) if self.subject.normalizes else self.subject
        return compare(subject, class_strings(subject.characters), self.seeds)

    def run_sanitized(self, variant: str) -> Counts:
        return compare(self.subject, sanitized_texts(self.shared, self.subject), self.seeds[:1], variant=variant)


def sanitized_texts(shared: Path, subject: Subject) -> list[Text]:
    """Added tokens, beginnings of all corpora, pieces for each of the merging kernels: SANITIZED_BYTES."""
    parts = ["".join(subject.added[:20]), *(text.text for text in emulated_texts.runs((300,)) if len(text.text) < 400)]
    parts += [next(lines(shared, corpus))[:200] for corpus in all_corpora(shared) if corpus != "agent_chats"]
    joined = "\n".join(parts).encode()
    kept = joined[: SANITIZED_BYTES - 1000].decode(errors="ignore")
    return [Text("mixed", kept), *(Text("short", text) for text in ("", "a", "'s", "中文", "l" * 700))]


def _is_text(text: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def materials(shared: Path) -> dict[str, Run]:
    """Everything that is run on an artifact, by name."""
    made: dict[str, Run] = {
        "cases": Bench.run_cases,
        "hostile": Bench.run_hostile,
        "class strings": Bench.run_class_strings,
    }
    for corpus in all_corpora(shared):
        made[corpus] = functools.partial(Bench.run_corpus, corpus=corpus)
    made["cases by the host"] = Bench.run_cases_by_host
    for variant in SANITIZERS:
        made[variant] = functools.partial(Bench.run_sanitized, variant=variant)
    return made


def pre_tokenizers(artifacts: Artifacts) -> dict[str, str]:
    """Of each artifact the first one with the same pre-tokenizer, on which the strings of classes are run."""
    first: dict[str, str] = {}
    return {
        name: first.setdefault(json.dumps(json.loads(artifacts.path(name).read_bytes())["pre_tokenizer"]), name)
        for name in artifacts.names
    }


def _identity(path: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """What a result holds for: the kernels, and what makes the program and the texts."""
    sources = [Path(emulated_texts.__file__), Path(_native.__file__)]
    for directory in ("kernels", "toktier/program"):
        sources += sorted(source for source in (ROOT / directory).rglob("*") if source.suffix in SOURCES)
    return {
        "tokenizers": tokenizers.__version__,
        "seeds": list(seeds),
        "bytes": [CORPUS_BYTES, CASE_BYTES, HOSTILE_TEXTS, SANITIZED_BYTES],
        "sources": hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest(),
        "tokenizer.json": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def run_artifact(shared: Path, path: Path, out: Path, wanted: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Runs what `out` does not hold yet, and writes after each material."""
    file = out / f"{path.stem}.json"
    document: dict[str, Any] = {"artifact": path.stem, "identity": _identity(path, seeds), "results": {}}
    held = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if held.get("identity") == document["identity"]:
        document = held
    results = document["results"]
    missing = [name for name in wanted if name not in results and "not_taken" not in document]
    bench: Bench | None = None
    for name in missing:
        try:
            bench = bench or Bench(shared, path, seeds)
        except NotTaken as premise:
            document["not_taken"] = str(premise)
            _write(file, document)
            break
        start, spent = time.monotonic(), time.process_time()
        counts = asdict(materials(shared)[name](bench))
        times = {"seconds": round(time.monotonic() - start, 1), "cpu_seconds": round(time.process_time() - spent, 1)}
        results[name] = {**counts, **times}
        _write(file, document)
        print(f"{path.stem} {name}: {_line(results[name])}", flush=True)
    return {**document, "results": {name: results[name] for name in wanted if name in results}}


def _write(file: Path, document: dict[str, Any]) -> None:
    """Whole or not at all, for a run that is broken off."""
    made = file.with_suffix(".new")
    made.write_text(json.dumps(document, indent=1), encoding="utf-8")
    made.replace(file)


def _line(counts: dict[str, Any]) -> str:
    facts = {key: value for key, value in counts.items() if key not in ("mismatches", "redone")}
    facts["mismatches"] = len(counts["mismatches"])
    redone = " ".join(f"{reason}={n}" for reason, n in sorted(counts["redone"].items())) or "nothing"
    return " ".join(f"{key}={value}" for key, value in facts.items()) + f" redone: {redone}"


def total(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums over artifacts, by material."""
    by_material: dict[str, dict[str, Any]] = {}
    for document in documents:
        for name, counts in document["results"].items():
            into = by_material.setdefault(name, {"artifacts": 0, "redone": {}, "mismatches": []})
            into["artifacts"] += 1
            for reason, n in counts["redone"].items():
                into["redone"][reason] = into["redone"].get(reason, 0) + n
            into["mismatches"] += [{"artifact": document["artifact"], **one} for one in counts["mismatches"]]
            for key, value in counts.items():
                if isinstance(value, (int, float)):
                    into[key] = round(into.get(key, 0) + value, 1)
    return by_material


def main() -> int:
    if SHARED is None:
        sys.exit("needs ../shared, which is not here")
    names = Artifacts(SHARED, SHARED).names
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", action="append", choices=names, help="name in ../shared/artifacts")
    parser.add_argument("--material", action="append", choices=list(materials(SHARED)))
    parser.add_argument("--seed", action="append", type=int, help="of the order of lanes")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "emulated")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with ProcessPoolExecutor(options.workers) as pool:
        unpacked = options.out / "artifacts"
        unpacked.mkdir(exist_ok=True)
        artifacts = Artifacts(SHARED, unpacked)
        first = pre_tokenizers(artifacts)
        running = []
        for name in options.artifact or names:
            wanted = [m for m in options.material or materials(SHARED) if m != "class strings" or first[name] == name]
            job = (SHARED, artifacts.path(name), options.out, wanted, options.seed or SEEDS)
            running.append(pool.submit(run_artifact, *job))
        documents = [job.result() for job in running]
    sums = total(documents)
    not_taken = {document["artifact"]: document["not_taken"] for document in documents if "not_taken" in document}
    seconds = round(time.monotonic() - start, 1)
    told = {"not_taken": not_taken, "totals": sums, "seconds_of_this_run": seconds}
    (options.out / "total.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    for artifact, premise in not_taken.items():
        print(f"{artifact}: no device takes it: {premise}")
    for name, counts in sums.items():
        print(f"all, {name}: {_line(counts)}")
    wrong = [mismatch for counts in sums.values() for mismatch in counts["mismatches"]]
    served = sum(counts["device_documents"] for counts in sums.values())
    print(f"tokenizers {tokenizers.__version__}: {served} documents served, {len(wrong)} mismatches, {seconds} seconds")
    if wrong:
        shortest = min(wrong, key=lambda mismatch: len(mismatch.get("minimised") or mismatch["text"]))
        print(f"MISMATCH {json.dumps(shortest)}")
    return int(bool(wrong) or served == 0)


if __name__ == "__main__":
    sys.exit(main())
