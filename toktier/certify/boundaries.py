"""Where pieces begin, made visible: ids alone may hide a boundary, so pre-tokenizers are compared by themselves.

The reference's is its own component on the text as it stands, without normalizer, added tokens and prefix space; ours
is the engine's `split` on the subject's program, in both forms of its tables. Kept pieces are compared as byte ranges.

Not here: texts (`suites/`), what the tables say (toktier/program).
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import random
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

    from toktier._native import Program
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally
    from toktier.program.boundary import BoundaryTables

Span = tuple[int, int]

NO_PRE_TOKENIZER = "no pre-tokenizer: a segment is one piece"
SPLITS_BYTES = "the pre-tokenizer splits inside characters: its boundaries are compared by ids only"


def why_not(subject: Subject) -> str | None:
    """Why the boundaries of this subject cannot be looked at; None where they can."""
    if subject.boundary is None:
        return NO_PRE_TOKENIZER
    return SPLITS_BYTES if subject.spec.pre_tokenizer.byte_runs else None


@lru_cache(maxsize=2)
def reference_pre_tokenizer(subject: Subject) -> PreTokenizer:
    """The reference's own, loaded from the subject's file; a prefix space, which is put before it, left out."""
    from tokenizers import Tokenizer

    component = copy.deepcopy(json.loads(subject.data)["pre_tokenizer"])
    steps = component["pretokenizers"] if component["type"] == "Sequence" else [component]
    while any(step["type"] == "Sequence" for step in steps):
        steps = [inner for step in steps for inner in step.get("pretokenizers", [step])]
    for step in steps:
        if step["type"] == "ByteLevel":
            step["add_prefix_space"] = False
    model = {"type": "BPE", "vocab": {}, "merges": []}
    loaded = Tokenizer.from_str(json.dumps({"version": "1.0", "pre_tokenizer": component, "model": model}))
    found: PreTokenizer = loaded.pre_tokenizer
    return found


def native_pieces(program: Program, text: str, **form: bool) -> list[Span]:
    """Kept pieces in bytes of UTF-8; `form`: as `Program.split`."""
    return kept(text, *program.split(text, **form))


def kept(text: str, bounds: list[int], dropped: list[bool]) -> list[Span]:
    ends = [*bounds, len(text) if text.isascii() else len(text.encode())]
    return [span for span, drop in zip(zip((0, *bounds), ends, strict=True), dropped, strict=True) if not drop]


def reference_pieces(pre_tokenizer: PreTokenizer, text: str) -> list[Span]:
    """The same of the reference."""
    spans: list[Span] = [span for _, span in pre_tokenizer.pre_tokenize_str(text)]
    if text.isascii():
        return spans
    at = list(itertools.accumulate([len(c.encode()) for c in text], initial=0))
    return [(at[begin], at[end]) for begin, end in spans]


def check_boundaries(tally: Tally, texts: Iterable[str], *, both: bool = True) -> None:
    """Our tables against the reference, text by text, in every way in which the engine reads them: by the token
    automaton, by the splitter that encodes at each dispatch level, and with `both` by the two canonical automata. A
    comparison each."""
    subject = tally.subject
    program, reference = subject.native, reference_pre_tokenizer(subject)
    forms: list[tuple[str, Any, dict[str, bool]]] = [("pieces", program.split, {})]
    forms += [(f"pieces at level {at.level}", at.split, {"windows": True}) for at in subject.native_levels]
    if both:
        forms.append(("two-pass pieces", program.split, {"two_pass": True}))
    evidence, agreed = hashlib.sha256(), 0
    for text in texts:
        expected = reference_pieces(reference, text)
        evidence.update(f"{text}\0{expected}\n".encode())
        right: Any = None  # what a form gave that was found to be right: the next one that gives it is, too
        for what, split, form in forms:
            got = split(text, **form)
            if got == right:
                agreed += 1
            elif (found := kept(text, *got)) == expected:
                agreed, right = agreed + 1, got
            else:
                tally.check(what, text, found, expected)
    tally.agreed(agreed, evidence.digest())


def class_choices(boundary: BoundaryTables, seed: str) -> list[list[str]]:
    """Of each class: its representative, its first and last code point, and one by the seed. Never a surrogate."""
    rng = random.Random(seed)
    ranges: list[list[Span]] = [[] for _ in range(boundary.n_class)]
    for low, high, number in boundary.class_ranges:
        for part in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)):
            if part[0] <= part[1]:
                ranges[number].append(part)
    chosen = []
    for number, parts in enumerate(ranges):
        # A range at a time: a class of a million code points has as many kinds of them as it has ranges.
        one = rng.randint(*rng.choice(parts))
        members = (boundary.representatives[number], parts[0][0], parts[-1][1], one)
        chosen.append(list(map(chr, members)))
    return chosen


def texts_of(strings: Iterable[bytes], choices: list[list[str]], rng: random.Random | None = None) -> Iterable[str]:
    """Class strings as texts: of representatives, or of any choice at each position where `rng` is given."""
    first = [members[0] for members in choices]
    for string in strings:
        if rng is None:
            yield "".join([first[c] for c in string])
        else:
            yield "".join([rng.choice(choices[c]) for c in string])


def boundary_facts(subject: Subject) -> dict[str, Any]:
    """Sizes of the tables and their digest: which tables a boundary suite speaks of."""
    tables = subject.boundary
    assert tables is not None
    sizes = (tables.n_class, tables.n_left, tables.n_right, tables.left_start, tables.right_end)
    parts = (f"{sizes} {tables.class_ranges}".encode(), tables.left, tables.right, tables.matrix)
    return {
        "classes": tables.n_class,
        "left_states": tables.n_left,
        "right_states": tables.n_right,
        "one_pass_states": 0 if subject.automaton is None else subject.automaton.n_state,
        "tables_sha256": hashlib.sha256(b"\0".join(parts)).hexdigest(),
    }
