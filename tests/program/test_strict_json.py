"""JSON is read as strictly as the reference reads it, and damage is named with its place."""

from __future__ import annotations

import gc
import json

import pytest
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from toktier.errors import ArtifactDamaged, ExitCode, NotATokenizer
from toktier.program import strict_json
from toktier.program.strict_json import RepeatedKeys, parse_json

DAMAGED = {
    "empty": (b"", 0, True),
    "cut in an object": (b'{"a": [1, 2', 11, True),
    "cut in a string": (b'{"a": "xyz', 10, True),
    "cut in a literal": (b'{"a": fal', 9, True),
    "cut in an escape": (b'{"a": "\\u00', 11, True),
    "cut in a character": ('{"a": "é"}'.encode()[:8], 7, True),
    "cut after a sign": (b'{"a": -', 7, True),
    "not UTF-8": (b'{"a": "\xff"}', 7, False),
    "a mark of byte order": (b"\xef\xbb\xbf{}", 0, False),
    "UTF-16": ("{}".encode("utf-16"), 0, False),
    "trailing text": (b"{} x", 3, False),
    "two values": (b"{}{}", 2, False),
    "NaN": (b'{"a": NaN}', 6, False),
    "infinity": (b'[-Infinity]', 1, False),
    "a control character": (b'["\x01"]', 2, False),
    "a lone surrogate": (b'["x\\ud800y"]', 3, False),
    "surrogates in the wrong order": (b'["\\udc00\\ud800"]', 2, False),
    "a comment": (b"/* */ {}", 0, False),
    "single quotes": (b"{'a': 1}", 1, False),
    "a trailing comma": (b"[1,]", 3, False),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_named_with_its_place(case: str) -> None:
    data, position, ends_early = DAMAGED[case]
    with pytest.raises(ArtifactDamaged) as caught:
        parse_json(data, "some.json")
    error = caught.value
    assert error.details == {"name": "some.json", "size": len(data), "position": position, "ends_early": ends_early}
    assert "some.json" in error.message
    assert f"{len(data):,} bytes" in error.message
    assert ("ends" in error.message or "empty" in error.message) == ends_early
    assert error.exit_code is ExitCode.INTEGRITY
    assert "\n" not in error.message


@pytest.mark.parametrize("case", [case for case, (data, _, _) in DAMAGED.items() if data])
def test_the_reference_refuses_the_same_texts(case: str) -> None:
    """Each kind of damage, put where a tokenizer.json has a field that the reference passes over."""
    data = DAMAGED[case][0]
    whole = maker.encoded(maker.minimal())
    inside = whole[:-1] + b',"version":' + data + b"}"
    for damaged in (data, inside):
        with pytest.raises(BaseException, match=r".") as caught:
            Tokenizer.from_buffer(damaged)
        assert type(caught.value).__name__ in ("ValueError", "Exception", "PanicException")


def test_the_end_of_every_prefix_is_the_place() -> None:
    data = maker.encoded(maker.minimal())
    for length in range(len(data) - 1):
        with pytest.raises(ArtifactDamaged) as caught:
            parse_json(data[:length], "f")
        assert caught.value.details["ends_early"], length


def test_values_are_those_of_json() -> None:
    document = {
        "a": [1, -2, 1.5, True, None, "é\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")],
        "": {},
    }
    for ascii_only in (True, False):
        assert parse_json(json.dumps(document, ensure_ascii=ascii_only).encode(), "f") == document
    assert parse_json(b'["\\\\ud800"]', "f") == ["\\ud800"], "an escaped backslash starts no escape"
    assert parse_json(b' \n"\\ud83d\\ude00" ', "f") == "\U0001f600"


def test_minus_zero_is_no_integer() -> None:
    assert parse_json(b"[0, -1, 10]", "x") == [0, -1, 10]
    (value,) = parse_json(b"[-0]", "x")
    assert isinstance(value, float)
    assert parse_json(b'["-0", -10, 3]', "x") == ["-0", -10, 3]


def test_repeated_keys_stay_visible() -> None:
    value = parse_json(b'{"a": 1, "b": {"x": 1, "y": 2, "x": 3}}', "f")
    assert not isinstance(value, RepeatedKeys)
    assert isinstance(value["b"], RepeatedKeys)
    assert value["b"] == {"x": 3, "y": 2}
    assert value["b"].repeated == "x"


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":', b'{"]}\\"]":'])
def test_deep_nesting_is_damage_at_the_deepest_bracket(opening: bytes) -> None:
    data = b'{"a": [[1], "[[[", ' + opening * 100_000
    with pytest.raises(ArtifactDamaged, match="nested too deeply") as caught:
        parse_json(data, "f")
    place = max(data.rfind(b"["), data.rfind(b"{"))
    assert caught.value.details["position"] == place
    assert caught.value.message.endswith(f" at byte {place:,}")


def test_no_message_says_at_twice() -> None:
    with pytest.raises(ArtifactDamaged) as caught:
        parse_json(b'["\x01"]', "f")
    assert caught.value.message.endswith("(Invalid control character) at byte 2")


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(NotATokenizer, match="digits"):
        parse_json(b"[" + b"9" * 10_000 + b"]", "f")


def test_a_huge_file_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "MAX_BYTES", 10)
    with pytest.raises(NotATokenizer, match=r"no tokenizer\.json has more than 10"):
        parse_json(b"x" * 11, "f")


def test_more_values_than_any_file_has_are_refused_before_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "MAX_VALUES", 100)
    parse_json(b"[" + b"0," * 99 + b"0]", "f")
    parse_json(b'["' + b"x" * 1000 + b'"]', "f")
    for opening in (b"0", b"[]", b"{}"):
        with pytest.raises(NotATokenizer, match="more than 100 values"):
            parse_json(b"[" + (opening + b",") * 100 + b"0]", "f")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        parse_json(b"[]", "f")
        with pytest.raises(ArtifactDamaged):
            parse_json(b"[", "f")
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
