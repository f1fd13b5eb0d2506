"""The registry says what the evidence says, of the engine it is of, under the name that the bytes have."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import validator
from tests.support.evidence_documents import evidence_document, gpu_evidence_document, sealed
from tests.support.material import ROOT, Artifacts

sys.path.insert(0, str(ROOT / "tools"))

import generate_gpu_suitability as suitability
import generate_registry as generator
import generate_support_matrix as matrix
import verify_carryover as carryover

from toktier.artifacts.pins import shipped_pins
from toktier.evidence import document
from toktier.evidence.admission import Admission
from toktier.evidence.registry import parse_registry
from toktier.gpu.architectures import ARCHITECTURES
from toktier.program.engine_identity import build_facts
from toktier.routing.vocabulary import BackendId

OLD, NOW, NEXT = "1" * 64, "2" * 64, "3" * 64
SHA, PRINT = "ab" * 32, "cd" * 32
BOTH = ("0.22.2", "0.23.3")


def put(root: Path, name: str, given: dict[str, Any], file: str | None = None) -> Path:
    path = root / name / (file or f"fast_cpu-{given['plan']['reference']['version']}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(given))
    return path


def rows(root: Path, engine: str = NOW, suites: tuple[str, ...] = ("one", "two")) -> list[Any]:
    return list(parse_registry(generator.table(generator.records(root), engine, set(suites))).rows)


def test_a_row_for_an_artifact_and_an_entry_for_a_reference_version(tmp_path: Path) -> None:
    for version in BOTH:
        put(tmp_path, "something", evidence_document(engine=NOW, reference=version))
    (row,) = rows(tmp_path)
    assert row["status"] == "certified"
    assert row["artifact"] == {"name": "something", "family": None, "sha256": SHA, "fingerprint": PRINT}
    assert row["constraints"] == {"reference_versions": list(BOTH), "dispatch_levels": build_facts()["dispatch_levels"]}
    entry = row["references"]["0.22.2"]
    assert (entry["status"], entry["level"], entry["engine_identity"]) == ("certified", "quick", NOW)
    assert entry["readings"] == {"documents": 20, "utf8_bytes": 2000, "ids": 600, "checks": 24, "routed": 0}


def test_one_reference_version_alone_certifies_beside_that_one(tmp_path: Path) -> None:
    put(tmp_path, "something", evidence_document(engine=NOW))
    (row,) = rows(tmp_path)
    assert (row["status"], row["constraints"]["reference_versions"]) == ("untested", ["0.23.3"])
    assert row["references"]["0.23.3"]["status"] == "certified"


def test_evidence_of_another_engine_or_of_some_suites_is_untested_and_says_so(tmp_path: Path) -> None:
    put(tmp_path, "something", evidence_document(engine=OLD))
    (row,) = rows(tmp_path)
    entry = row["references"]["0.23.3"]
    assert (row["status"], entry["status"]) == ("untested", "untested")
    assert OLD[:12] in entry["note"]
    assert NOW[:12] in entry["note"]
    put(tmp_path, "something", evidence_document(engine=NOW))
    (row,) = rows(tmp_path, suites=("one", "two", "three"))
    assert row["references"]["0.23.3"]["status"] == "untested"
    assert "three" in row["references"]["0.23.3"]["note"]


def test_a_pinned_artifact_lies_under_its_family_and_nothing_else_does(tmp_path: Path) -> None:
    mini = shipped_pins().family("toktier_mini").tokenizer.sha256
    put(tmp_path / "good", "toktier_mini", evidence_document(engine=NOW, sha256=mini, name="whatever"))
    assert rows(tmp_path / "good")[0]["artifact"]["family"] == "toktier_mini"
    for place, name, sha256 in (
        ("qwen3_8b", "qwen3_8b", mini),  # another family's bytes
        ("qwen3_8b", "qwen3_8b", SHA),  # nobody's bytes under a family's name
        ("elsewhere", "something", SHA),
    ):
        root = tmp_path / f"{place}{sha256[:4]}"
        put(root, place, evidence_document(engine=NOW, sha256=sha256, name=name))
        with pytest.raises(SystemExit, match="is of"):
            generator.records(root)


@pytest.mark.parametrize("fault", ["edited", "failed", "reference", "build"])
def test_a_record_that_does_not_hold_is_refused(tmp_path: Path, fault: str) -> None:
    given, file = evidence_document(engine=NOW), None
    if fault == "edited":
        given["totals"]["documents"] += 1
    elif fault == "failed":
        given = sealed({**given, "outcome": "failed"})
    elif fault == "reference":
        file = "fast_cpu-0.22.2.json"
    else:
        given = sealed({**given, "build": {**given["build"], "identity": OLD}})
    put(tmp_path, "something", given, file)
    with pytest.raises(SystemExit, match="something/fast_cpu"):
        generator.records(tmp_path)


def carried(root: Path, quick: dict[str, Any], former: dict[str, Any], *history: tuple[str, str]) -> Any:
    path = put(root, "something", quick)
    put(root, "something", former, carryover.former_of(path).name)
    for engine, tables in history:
        carryover.record(path.parent, SHA, engine, tables)
    return rows(root)[0]["references"]["0.23.3"]


SAME = ((OLD, "t"), (NOW, "t"))


def test_a_standard_record_counts_for_one_further_identity_when_quick_passes_and_tables_are_equal(
    tmp_path: Path,
) -> None:
    former = evidence_document(engine=OLD, level="standard")
    entry = carried(tmp_path, evidence_document(engine=NOW), former, *SAME)
    assert (entry["status"], entry["level"], entry["carried_from"]) == ("certified", "standard", OLD)
    assert (entry["engine_identity"], entry["evidence"]) == (NOW, former["digest"])
    assert OLD[:12] in entry["note"]


@pytest.mark.parametrize(
    ("former", "history"),
    [
        ({"engine": OLD, "level": "quick"}, SAME),
        ({"engine": OLD, "level": "standard"}, ((OLD, "t"), (NOW, "other"))),
        ({"engine": OLD, "level": "standard"}, ((OLD, "t"), (NEXT, "t"), (NOW, "t"))),
        ({"engine": OLD, "level": "standard"}, ((NOW, "t"),)),
        ({"engine": OLD, "level": "standard"}, ()),
        ({"engine": OLD, "level": "standard", "reference": "0.22.2"}, SAME),
        ({"engine": OLD, "level": "standard", "sha256": "12" * 32}, SAME),
    ],
)
def test_otherwise_the_quick_one_alone_counts(
    tmp_path: Path, former: dict[str, Any], history: tuple[tuple[str, str], ...]
) -> None:
    entry = carried(tmp_path, evidence_document(engine=NOW), evidence_document(**former), *history)
    assert (entry["status"], entry["level"], entry["carried_from"]) == ("certified", "quick", None)


def test_a_quick_record_that_did_not_pass_under_the_new_identity_carries_nothing() -> None:
    quick = document.of_document(sealed({**evidence_document(engine=NOW), "outcome": "failed"}), "x")
    former = document.of_document(evidence_document(engine=OLD, level="standard"), "x")
    entries = [{"engine": OLD, "tables": "t"}, {"engine": NOW, "tables": "t"}]
    assert carryover.carried(quick, former, entries) == "one of the two records is no pass"


def test_the_digest_of_tables_sees_a_table_and_not_the_name_of_a_build() -> None:
    from tests.support.material import SMALL_DIR
    from toktier.program.compile import compile_tokenizer
    from toktier.program.file import read_program, write_program

    program = read_program(compile_tokenizer((SMALL_DIR / "cl100k_like.json").read_bytes(), "x"))
    sections = {tag: bytes(program.section(tag)) for tag in program.places}
    before = carryover.tables_digest(program)

    def changed(tag: str) -> str:
        data = bytes([*sections[tag][:-1], sections[tag][-1] ^ 1])
        return carryover.tables_digest(read_program(write_program({**sections, tag: data}, SHA, PRINT)))

    assert changed("META") == before
    assert all(changed(tag) != before for tag in sections if tag != "META")


def test_a_release_demands_every_entry_and_every_tokenizer_that_needs_no_hub(tmp_path: Path) -> None:
    assert generator.needed() == ["deepseek_v4_flash", "qwen3_8b", "toktier_mini"]
    for name in generator.needed():
        sha256 = shipped_pins().family(name).tokenizer.sha256
        for version in BOTH:
            put(tmp_path, name, evidence_document(engine=NOW, sha256=sha256, fingerprint=sha256, reference=version))
    suites = {"one", "two"}
    assert generator.release_problems(generator.table(generator.records(tmp_path), NOW, suites)) == []
    stale = generator.release_problems(generator.table(generator.records(tmp_path), NEXT, suites))
    assert len(stale) == 6
    (tmp_path / "qwen3_8b" / "fast_cpu-0.22.2.json").unlink()
    (problem,) = generator.release_problems(generator.table(generator.records(tmp_path), NOW, suites))
    assert problem == "qwen3_8b on fast_cpu beside 0.22.2: no evidence"


def test_the_matrix_says_what_the_registry_says(tmp_path: Path) -> None:
    mini = shipped_pins().family("toktier_mini").tokenizer.sha256
    for version in BOTH:
        put(tmp_path, "toktier_mini", evidence_document(engine=NOW, sha256=mini, reference=version))
    put(tmp_path, "something", evidence_document(engine=OLD))
    found = generator.records(tmp_path)
    known = parse_registry(generator.table(found, NOW, {"one", "two"}))
    page = "".join([*matrix.families(list(known.rows)), *matrix.others(list(known.rows)), *matrix.coverage(found)])
    line = next(line for line in page.splitlines() if line.startswith("| toktier_mini | shipped"))
    assert "certified: 0.22.2 (quick), 0.23.3 (quick) | compiled_unjudged |" in line
    assert f"| something | `{SHA}` | untested: its evidence is of another engine | compiled_unjudged, where the" in page
    assert "- one: covered 7" in page
    assert known.row(BackendId.FAST_CPU, mini, None) is not None


def test_the_matrix_says_of_a_gpu_what_a_load_would() -> None:
    """Without evidence: compiled and judged by nobody, unless the kernels cannot follow it."""
    suits = {"a" * 64: None, "b" * 64: "model"}
    unjudged = Admission().status(BackendId.GPU)
    assert matrix.gpu_status(None, "a" * 64, suits, ["sm_90"]) == unjudged == "compiled_unjudged"
    assert matrix.gpu_status(None, "b" * 64, suits, ["sm_90"]) == "unsupported: kernels cannot follow it (model)"
    assert matrix.gpu_status(None, "c" * 64, suits, ["sm_90"]).endswith(", where the kernels can follow it")
    assert matrix.gpu_status(None, "a" * 64, suits, []) == "untested"
    page = "".join(matrix.kernels([]))
    assert all(architecture in page for architecture in ARCHITECTURES)
    assert "Judged on no device" in page
    judged = {"backend": "gpu", "references": {"0.23.3+sm_90": {}}}
    assert "Judged on sm_90." in "".join(matrix.kernels([judged]))


def test_the_table_of_suitability_holds() -> None:
    assert suitability.check_alone() == []
    validator("gpu_suitability").validate(json.loads(suitability.TABLE.read_bytes()))


@pytest.mark.ci
@pytest.mark.parametrize("name", ["qwen3", "llama2"])
def test_the_table_of_suitability_is_what_the_native_module_says(artifacts: Artifacts, name: str) -> None:
    data = artifacts.path(name).read_bytes()
    premise = suitability.premise_of(data)
    assert suitability.read_table()[hashlib.sha256(data).hexdigest()] == premise
    assert premise == {"qwen3": None, "llama2": "model"}[name]


def test_kernels_have_an_entry_for_each_compute_capability(tmp_path: Path) -> None:
    host = "7" * 64
    kernels = {
        "cubin": "1" * 64, "abi": 1, "architecture": "sm_90", "compute_capability": "9.0", "host": host,
        "tables": "2" * 64,
    }  # fmt: skip
    other = {**kernels, "cubin": "3" * 64, "architecture": "sm_120", "compute_capability": "12.0"}
    put(tmp_path, "something", gpu_evidence_document(kernels, engine=NOW), "gpu-0.23.3+sm_90.json")
    put(tmp_path, "something", gpu_evidence_document(other, engine=NOW), "gpu-0.23.3+sm_120.json")
    put(tmp_path, "something", evidence_document(engine=NOW))
    of_cpu, of_gpu = sorted(rows(tmp_path), key=lambda row: str(row["backend"]))
    assert "kernels" not in of_cpu["references"]["0.23.3"]
    assert of_gpu["references"]["0.23.3+sm_90"]["kernels"] == kernels
    assert of_gpu["references"]["0.23.3+sm_120"]["kernels"] == other
    assert of_gpu["constraints"]["reference_versions"] == ["0.23.3+sm_120", "0.23.3+sm_90"]
    assert of_gpu["status"] == "untested"  # one version of the reference is not both

    def with_host(digest: str) -> Any:
        found = generator.table(generator.records(tmp_path), NOW, {"one", "two"}, digest)
        return next(row for row in parse_registry(found).rows if row["backend"] == "gpu")["references"]

    assert with_host(host)["0.23.3+sm_90"]["status"] == "certified"
    stale = with_host("8" * 64)["0.23.3+sm_90"]
    assert (stale["status"], "host side" in stale["note"]) == ("untested", True)
    (tmp_path / "something" / "gpu-0.23.3+sm_90.json").rename(tmp_path / "something" / "gpu-0.23.3+sm_80.json")
    with pytest.raises(SystemExit, match="sm_80"):
        rows(tmp_path)
