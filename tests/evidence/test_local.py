"""Evidence of this host: kept whole, found by bytes or fingerprint, and believed only where nobody else could write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.evidence_documents import evidence_document, sealed
from toktier.canonical import canonical_json
from toktier.errors import EvidenceIncomplete, EvidenceInvalid
from toktier.evidence import local
from toktier.routing.vocabulary import BackendId

CPU = BackendId.FAST_CPU
SHA, PRINT = "ab" * 32, "cd" * 32


def find(
    state: Path, sha256: str = SHA, fingerprint: str | None = PRINT, version: str = "0.23.3"
) -> local.Found | None:
    return local.find(state, CPU, version, sha256, fingerprint)


def test_what_is_stored_is_found_by_its_bytes_and_by_its_fingerprint(tmp_path: Path) -> None:
    given = evidence_document()
    path = local.store(given, tmp_path)
    assert path == tmp_path / "evidence" / SHA / "fast_cpu.0.23.3.json"
    assert path.read_bytes() == canonical_json(given) + b"\n"
    assert path.stat().st_mode & 0o777 == 0o600
    for sha256, fingerprint in ((SHA, PRINT), (SHA, None), ("0" * 64, PRINT)):
        found = find(tmp_path, sha256, fingerprint)
        assert found is not None
        assert found.evidence is not None
        assert found.evidence.digest == given["digest"]
    assert find(tmp_path, "0" * 64, "1" * 64) is None
    assert find(tmp_path, version="0.22.2") is None
    assert [f.evidence for f in local.everything(tmp_path)] == [find(tmp_path).evidence]  # type: ignore[union-attr]


def test_only_a_whole_pass_is_kept(tmp_path: Path) -> None:
    failed = sealed({**evidence_document(), "outcome": "failed"})
    with pytest.raises(EvidenceInvalid, match="pass"):
        local.store(failed, tmp_path)
    with pytest.raises(EvidenceIncomplete, match="three did not run"):
        local.store(evidence_document(), tmp_path, required=("one", "three"))
    with pytest.raises(EvidenceInvalid):
        local.store({**evidence_document(), "outcome": "failed"}, tmp_path)
    assert not (tmp_path / "evidence").exists()


def test_nothing_is_found_and_nothing_made_where_there_is_nothing(tmp_path: Path) -> None:
    assert find(tmp_path / "none") is None
    assert list(local.everything(tmp_path / "none")) == []
    assert local.remove(tmp_path / "none", SHA) == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_does_not_count(tmp_path: Path, mode: int) -> None:
    local.store(evidence_document(), tmp_path).chmod(mode)
    found = find(tmp_path)
    assert found is not None
    assert found.evidence is None
    assert found.problem == "somebody else could have written it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_does_not_count(tmp_path: Path) -> None:
    os.chown(local.store(evidence_document(), tmp_path), 65534, 65534)
    found = find(tmp_path)
    assert found is not None
    assert found.evidence is None


def test_links_fifos_and_damage_do_not_count_and_hold_nobody(tmp_path: Path) -> None:
    path = local.store(evidence_document(), tmp_path)
    whole = path.read_bytes()

    def is_refused() -> bool:
        found = find(tmp_path)
        return found is not None and found.evidence is None and bool(found.problem)

    path.write_bytes(whole[:-10])
    assert is_refused()
    path.write_bytes(whole.replace(b'"passed"', b'"failed"'))
    assert is_refused()
    path.unlink()
    os.mkfifo(path)
    assert is_refused()
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(whole)
    path.symlink_to(tmp_path / "elsewhere")
    assert is_refused()
    path.unlink()
    path.mkdir()
    assert is_refused()


def test_a_file_under_the_name_of_something_else_does_not_count(tmp_path: Path) -> None:
    path = local.store(evidence_document(), tmp_path)
    for other in (path.with_name("fast_cpu.0.22.2.json"), path.with_name("gpu.0.23.3.json")):
        other.write_bytes(path.read_bytes())
        other.chmod(0o600)
    assert find(tmp_path, version="0.22.2").problem  # type: ignore[union-attr]
    assert local.find(tmp_path, BackendId.GPU, "0.23.3", SHA, PRINT).problem  # type: ignore[union-attr]
    foreign = tmp_path / "evidence" / ("0" * 64)
    foreign.mkdir()
    (foreign / path.name).write_bytes(path.read_bytes())
    (foreign / path.name).chmod(0o600)
    assert find(tmp_path, "0" * 64, "1" * 64).problem  # type: ignore[union-attr]


def test_forgetting_leaves_nothing_and_takes_nothing_of_another_artifact(tmp_path: Path) -> None:
    local.store(evidence_document(), tmp_path)
    local.store(evidence_document(reference="0.22.2"), tmp_path)
    local.store(evidence_document(sha256="12" * 32, reference="0.22.2"), tmp_path)  # the same fingerprint
    assert local.remove(tmp_path, SHA) == 2
    assert find(tmp_path) is None
    assert find(tmp_path, "12" * 32, version="0.22.2").evidence  # type: ignore[union-attr]
    assert find(tmp_path, "0" * 64, version="0.22.2").evidence  # type: ignore[union-attr]
    assert local.remove(tmp_path, "12" * 32) == 1
    assert list((tmp_path / "evidence").iterdir()) == []


def test_a_damaged_file_can_be_forgotten(tmp_path: Path) -> None:
    path = local.store(evidence_document(), tmp_path)
    path.write_bytes(b"{}")
    assert local.remove(tmp_path, SHA) == 1
    assert not path.exists()


def test_a_copy_without_its_file_can_be_forgotten(tmp_path: Path) -> None:
    local.store(evidence_document(), tmp_path).unlink()
    assert find(tmp_path).evidence  # type: ignore[union-attr]
    assert local.of_artifact(tmp_path, SHA)
    assert local.remove(tmp_path, SHA) == 1
    assert find(tmp_path) is None
