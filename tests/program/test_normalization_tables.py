"""The tables of the normal forms: UAX #15 over nothing but them equals the installed reference."""

from __future__ import annotations

import json
import random
import unicodedata
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from tests.support.slow_uax15 import normalize
from toktier.program import unicode
from toktier.program.code_point_sets import Ranges, contains, size

FORMS = ("NFC", "NFKC", "NFD", "NFKD")
REFERENCE = {form: getattr(normalizers, form)() for form in FORMS}


def code_points(r: Ranges) -> list[int]:
    return [c for first, last in r for c in range(first, last + 1)]


def scalar_values() -> list[int]:
    return [*range(0xD800), *range(0xE000, 0x110000)]


def assert_equal_to_reference(form: str, texts: list[str]) -> None:
    tables = unicode.normalization(form)
    wrong = [text for text in texts if normalize(text, tables) != REFERENCE[form].normalize_str(text)]
    assert [ascii(text) for text in wrong] == []


def restless() -> list[int]:
    """Code points that take part in any form, and the starters that compose with some of them."""
    found = {first for first, _ in unicode.normalization("NFC").compositions if not 0xAC00 <= first < 0xD7A4}
    for form in FORMS:
        found |= {c for c in code_points(unicode.normalization(form).not_inert) if not 0xAC00 <= c < 0xD7A4}
    return sorted(found)


RESTLESS = restless()
MARKS = sorted(unicode.normalization("NFC").ccc)
HOSTILE = st.one_of(
    st.sampled_from(RESTLESS).map(chr),
    st.sampled_from(MARKS).map(chr),
    st.sampled_from(
        "aeiouAO\u0301\u0323\u0327\u0308\u031b\u0345\u0338\u1100\u1161\u11a8\uac00\uac01\n \u0e01\u0bc6\u0bbe"
    ),
    st.characters(codec="utf-8"),
)


def test_known_figures() -> None:
    nfc, nfkc = unicode.normalization("NFC"), unicode.normalization("NFKC")
    assert (len(nfc.ccc), len(set(nfc.ccc.values()))) == (810, 54)
    assert len(nfc.compositions) == 12_112
    assert (len({a for a, _ in nfc.compositions}), len({b for _, b in nfc.compositions})) == (794, 110)
    assert (size(nfc.no_boundary_before), size(nfkc.no_boundary_before)) == (888, 950)
    assert (len(nfc.decompositions), len(nfkc.decompositions)) == (13_232, 16_894)


def test_forms_share_what_does_not_depend_on_them() -> None:
    nfc, nfkc, nfd, nfkd = (unicode.normalization(form) for form in FORMS)
    assert nfc.ccc == nfkc.ccc == nfd.ccc == nfkd.ccc
    assert nfc.compositions == nfkc.compositions
    assert nfd.compositions == nfkd.compositions == {}
    assert nfc.decompositions == nfd.decompositions
    assert nfkc.decompositions == nfkd.decompositions
    with pytest.raises(KeyError):
        unicode.normalization("nfc")


def test_decompositions_are_full_and_in_canonical_order() -> None:
    for form in ("NFD", "NFKD"):
        tables = unicode.normalization(form)
        for parts in tables.decompositions.values():
            assert not any(part in tables.decompositions for part in parts)
            assert not any(tables.ccc.get(a, 0) > tables.ccc.get(b, 0) > 0 for a, b in pairwise(parts))


@pytest.mark.parametrize("form", FORMS)
def test_every_code_point_alone(form: str) -> None:
    """Complete: the reference changes exactly the not inert ones that the tables change, and as they do."""
    tables = unicode.normalization(form)
    texts = [chr(c) for c in code_points(tables.not_inert)]
    assert_equal_to_reference(form, texts)
    inert = [chr(c) for c in scalar_values() if not contains(tables.not_inert, c)]
    assert len(inert) + len(texts) == 0x110000 - 0x800
    for i in range(0, len(inert), 4096):
        text = "".join(inert[i : i + 4096])
        assert REFERENCE[form].normalize_str(text) == text


def test_every_composition() -> None:
    compositions = unicode.normalization("NFC").compositions
    n = REFERENCE["NFC"].normalize_str
    wrong = [(a, b) for (a, b), c in compositions.items() if n(chr(a) + chr(b)) != chr(c)]
    assert wrong == []
    assert_equal_to_reference("NFKC", [chr(a) + chr(b) for a, b in compositions])


def test_no_other_pair_composes() -> None:
    """Every first element with every second one, Hangul syllables sampled. Composition exclusions are among them."""
    compositions = unicode.normalization("NFC").compositions
    firsts = sorted({a for a, _ in compositions if not 0xAC01 < a < 0xD788})
    seconds = sorted({b for _, b in compositions})
    assert_equal_to_reference("NFC", [chr(a) + chr(b) for a, b in product(firsts, seconds)])


def test_reordering_of_every_pair_of_classes() -> None:
    ccc = unicode.normalization("NFD").ccc
    by_class: dict[int, list[int]] = {}
    for c, number in ccc.items():
        by_class.setdefault(number, []).append(c)
    draw = random.Random(9)
    texts = []
    for a, b in product(by_class.values(), repeat=2):
        texts += [f"a{chr(draw.choice(a))}{chr(draw.choice(b))}" for _ in range(2)]
    for form in FORMS:
        assert_equal_to_reference(form, texts)


@pytest.mark.parametrize("form", FORMS)
def test_hostile_strings(form: str) -> None:
    draw = random.Random(15)
    pools = [RESTLESS, MARKS, [0x61, 0x65, 0x0A, 0x1100, 0x1161, 0x11A7, 0x11A8, 0xAC00, 0x301, 0x323, 0x345, 0x338]]
    texts = ["".join(chr(draw.choice(draw.choice(pools))) for _ in range(draw.randint(1, 24))) for _ in range(4000)]
    assert_equal_to_reference(form, texts)


@given(st.lists(HOSTILE, max_size=40).map("".join), st.sampled_from(FORMS))
@settings(max_examples=300, deadline=None)
def test_law_uax15_over_the_tables_is_the_reference(text: str, form: str) -> None:
    assert normalize(text, unicode.normalization(form)) == REFERENCE[form].normalize_str(text)


@given(st.lists(HOSTILE, max_size=40).map("".join), st.sampled_from(FORMS))
@settings(max_examples=200, deadline=None)
def test_law_a_text_of_inert_code_points_is_its_own_form(text: str, form: str) -> None:
    inert = "".join(c for c in text if not contains(unicode.normalization(form).not_inert, ord(c)))
    assert REFERENCE[form].normalize_str(inert) == inert


@given(
    st.lists(HOSTILE, max_size=20).map("".join),
    st.lists(HOSTILE, max_size=20).map("".join),
    st.sampled_from(FORMS),
)
@settings(max_examples=300, deadline=None)
def test_law_a_text_may_be_cut_before_a_code_point_that_begins_a_unit(left: str, right: str, form: str) -> None:
    forbidden = unicode.normalization(form).no_boundary_before
    while right and contains(forbidden, ord(right[0])):
        right = right[1:]
    whole = REFERENCE[form].normalize_str(left + right)
    assert whole == REFERENCE[form].normalize_str(left) + REFERENCE[form].normalize_str(right)


def _interacts(form: str, c: int) -> bool:
    """Some text before `c` changes with `c`, or with what `c` lets pass to it."""
    tables = unicode.normalization(form)
    first = tables.decompositions.get(c, (c,))[0]
    before = [f"a{chr(mark)}" for mark in (0x345, 0x334, 0x323)]
    before += [chr(a) for a, b in tables.compositions if b == first][:2]
    n = REFERENCE[form].normalize_str
    return any(n(text + right) != n(text) + n(right) for text in before for right in (chr(c), f"{chr(c)}\u0301"))


@pytest.mark.parametrize("form", FORMS)
def test_no_code_point_is_kept_from_beginning_a_unit_without_need(form: str) -> None:
    kept = code_points(unicode.normalization(form).no_boundary_before)
    assert [hex(c) for c in kept if not _interacts(form, c)] == []


@pytest.mark.parametrize("form", FORMS)
def test_no_code_point_is_called_restless_without_need(form: str) -> None:
    """Each one changes alone, or takes part with a text before it."""
    tables = unicode.normalization(form)
    n = REFERENCE[form].normalize_str
    needless = [c for c in code_points(tables.not_inert) if n(chr(c)) == chr(c) and not _interacts(form, c)]
    assert [hex(c) for c in needless] == []


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="the cases are stated against Unicode 14.0.0")
def test_departures_from_unicode_14_are_the_known_ones(shared: Path) -> None:
    """../shared/cases/unicode_tables.json: where the reference differs from this Python's own database."""
    known = json.loads((shared / "cases" / "unicode_tables.json").read_text())["nfc_nfkc"]
    nfc, nfkc = unicode.normalization("NFC"), unicode.normalization("NFKC")

    def differing(form: str, tables: unicode.NormalizationTables, suffix: str) -> list[int]:
        # unassigned in both or untouched by both: only code points that one of the two knows can differ
        out = []
        for c in scalar_values():
            text = chr(c) + suffix
            theirs = unicodedata.normalize(form, text)
            inert = not contains(tables.not_inert, c) and theirs == text
            if not inert and normalize(text, tables) != theirs:
                out.append(c)
        return out

    def listed(runs: list[str]) -> list[int]:
        return [c for run in runs for a, b in [(run.split("-") * 2)[:2]] for c in range(int(a, 16), int(b, 16) + 1)]

    assert differing("NFC", nfc, "") == listed(known["nfc_single"]["runs"])
    assert differing("NFKC", nfkc, "") == listed(known["nfkc_single"]["runs"])
    assert len(listed(known["nfkc_single"]["runs"])) == known["nfkc_single"]["count"] == 72
