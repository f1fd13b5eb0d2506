"""Two tokenizers beside each other: every part in which they differ, with texts that show it when both encode them.

What is compared are the compiled meanings: boundaries as functions (two patterns that split alike are equal), added
tokens, vocabularies, merge rules, normalizers. An example is a text for which the ids, or the tokens, were really
different; a part without one differs on paper and in none of the texts that were tried.

Not here: whether two are the same tokenizer (fingerprint.py), and who is right (certification).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from toktier._native import EncoderBase, Program
from toktier.inspection.boundary_difference import shortest_difference
from toktier.program.boundary import compile_boundaries
from toktier.program.bpe_sections import byte_strings
from toktier.program.compile import compile_spec
from toktier.program.file import read_program
from toktier.program.tokenizer_json import TokenizerSpec, read_tokenizer

TRIES = 3000  # texts for each part: some seconds at most
LISTED = 20  # names of one kind in a result

# What normalizers change and leave, in several places of a text.
_PROBES = (
    "hello world", " hello", "hello ", "  two  blanks", "HELLO", "Größe", "e\u0301", "é", "\u212b", "ﬁ", "①", "Ａ",
    "\u00a0x", "\u3000", "a\u0338", "日本語", "\u1100\u1161", "İ", "ß", "▁x", "\t\n", "``x''", "\u200b", "12,345",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One of the two, ready to encode."""

    spec: TokenizerSpec
    fingerprint: str
    program: Program
    encoder: EncoderBase

    @staticmethod
    def of(data: bytes, name: str) -> Side:
        """Raises what reading and compiling raise."""
        spec = read_tokenizer(data, name)
        image = compile_spec(spec)
        program = Program(image)
        return Side(spec, read_program(image).fingerprint, program, EncoderBase(program))

    def ids(self, text: str) -> list[int]:
        return self.encoder.encode(text).ids

    def tokens(self, text: str) -> list[str]:
        return self.encoder.encode(text, offsets=True).tokens


@dataclass(frozen=True)
class Example:
    """A text and what each side made of it."""

    text: str
    a: list[Any]
    b: list[Any]


@dataclass(frozen=True)
class Difference:
    """A part in which the two differ. `affects`: ids, ids with special tokens, or decoded text."""

    part: str
    affects: str
    summary: str
    facts: dict[str, Any] = field(default_factory=dict)
    example: Example | None = None
    tried: int = 0


def differences(a: Side, b: Side) -> list[Difference]:
    """Every part in which the two differ; none where the fingerprints are equal."""
    if a.fingerprint == b.fingerprint:
        return []
    parts = (
        _normalizer,
        _added_tokens,
        _boundaries,
        _vocabulary,
        _identities,
        _merges,
        _model,
        _template,
        _decoder,
        _lengths,
    )
    return [found for part in parts if (found := part(a, b)) is not None]


def _show(a: Side, b: Side, texts: Iterable[str], see: Callable[[Side, str], list[Any]]) -> tuple[Example | None, int]:
    tried = 0
    for text in islice(texts, TRIES):
        tried += 1
        seen_a, seen_b = see(a, text), see(b, text)
        if seen_a != seen_b:
            return Example(text, seen_a, seen_b), tried
    return None, tried


def _by_tokens(a: Side, b: Side, texts: Iterable[str]) -> tuple[Example | None, int]:
    """Tokens first: ids of two vocabularies may differ in everything."""
    return _show(a, b, texts, Side.tokens)


def _normalizer(a: Side, b: Side) -> Difference | None:
    steps = [[step.to_json() for step in side.spec.normalizer] for side in (a, b)]
    if steps[0] == steps[1]:
        return None
    example, tried = _by_tokens(a, b, _PROBES)
    return Difference("normalizer", "ids", "other steps", {"a": steps[0], "b": steps[1]}, example, tried)


def _added_tokens(a: Side, b: Side) -> Difference | None:
    of_a, of_b = ({placed.token.content: placed for placed in side.spec.added_tokens} for side in (a, b))
    only_a, only_b = sorted(of_a.keys() - of_b.keys()), sorted(of_b.keys() - of_a.keys())
    both = sorted(of_a.keys() & of_b.keys())
    other_id = [content for content in both if of_a[content].id != of_b[content].id]
    other_flags = [content for content in both if of_a[content].token.flags != of_b[content].token.flags]
    if not (only_a or only_b or other_id or other_flags):
        return None
    contents = [*only_a, *only_b, *other_flags]
    texts = (form.format(content) for content in contents for form in ("{}", "x {} y", "x{}y", "\n{} \n", "{0}{0}"))
    example, tried = _by_tokens(a, b, texts) if contents else _show(a, b, other_id, Side.ids)
    facts = {
        "only_a": only_a[:LISTED], "only_b": only_b[:LISTED], "other_id": other_id[:LISTED],
        "other_flags": other_flags[:LISTED],
    }  # fmt: skip
    counts = (
        f"{len(only_a)} only in A, {len(only_b)} only in B, {len(other_flags)} with other flags,"
        f" {len(other_id)} with another id"
    )
    return Difference("added tokens", "ids", counts, facts, example, tried)


# Pre-tokenizer


def _boundaries(a: Side, b: Side) -> Difference | None:
    first, second = a.spec.pre_tokenizer, b.spec.pre_tokenizer
    others = [
        name for name in ("byte_level", "prefix_space", "byte_runs") if getattr(first, name) != getattr(second, name)
    ]
    difference = shortest_difference(*(compile_boundaries(pre_tokenizer.stages) for pre_tokenizer in (first, second)))
    if difference is None and not others:
        return None
    facts: dict[str, Any] = {"other_settings": others, "at": None}
    texts: Iterable[str] = _PROBES
    summary = f"other settings: {', '.join(others)}"
    if difference is not None:
        before, after = ("".join(members[0] for members in part) for part in (difference.before, difference.after))
        facts["at"] = [before, after]
        summary = f"a piece starts otherwise between {before!r} and {after!r}"
        texts = _spellings([*difference.before, *difference.after], difference.alphabet)
    example, tried = _by_tokens(a, b, texts)
    return Difference("boundaries", "ids", summary, facts, example, tried)


def _spellings(classes: list[list[str]], alphabet: list[list[str]]) -> Iterator[str]:
    """Texts of the classes, each given by characters of it, alone and between others."""
    chance = random.Random(0)
    yield "".join(members[0] for members in classes)
    while True:
        core = "".join(map(chance.choice, classes))
        yield core
        around = [chance.choice(chance.choice(alphabet)) for _ in range(4)]
        yield "".join(around[:2]) + core + "".join(around[2:])


# Model


def _strings(side: Side) -> dict[str, str]:
    """The vocabulary, each token with the text that it stands for: of bytes, what can be read of them."""
    vocabulary = list(side.spec.model.vocabulary)
    if not side.spec.pre_tokenizer.byte_level:
        return {token: token.replace("▁", " ") for token in vocabulary}
    raw = byte_strings(vocabulary)
    return {token: data.decode("utf-8", "ignore") for token, data in zip(vocabulary, raw, strict=True)}


def _vocabulary(a: Side, b: Side) -> Difference | None:
    of_a, of_b = a.spec.model.vocabulary, b.spec.model.vocabulary
    only_a = [token for token in of_a if token not in of_b]
    only_b = [token for token in of_b if token not in of_a]
    if not (only_a or only_b):
        return None
    strings = _strings(a) | _strings(b)
    mixed = [strings[token] for pair in zip(only_a, only_b, strict=False) for token in pair]
    rest = [strings[token] for token in (only_a[len(only_b) :] or only_b[len(only_a) :])]
    example, tried = _by_tokens(a, b, _in_contexts([*mixed, *rest]))
    facts = {"only_a": only_a[:LISTED], "only_b": only_b[:LISTED], "count_a": len(only_a), "count_b": len(only_b)}
    return Difference(
        "vocabulary", "ids", f"{len(only_a)} tokens only in A, {len(only_b)} only in B", facts, example, tried
    )


def _identities(a: Side, b: Side) -> Difference | None:
    of_b = b.spec.model.vocabulary
    moved = [token for token, i in a.spec.model.vocabulary.items() if of_b.get(token, i) != i]
    if not moved:
        return None
    strings = _strings(a)
    example, tried = _show(a, b, _in_contexts([strings[token] for token in moved]), Side.ids)
    summary = f"{len(moved)} tokens have another id"
    return Difference("token ids", "ids", summary, {"tokens": moved[:LISTED], "count": len(moved)}, example, tried)


def _rules(side: Side) -> list[tuple[str, str]]:
    names = {i: token for token, i in side.spec.model.vocabulary.items()}
    rows = side.spec.model.rules
    return [(names[rows[k]], names[rows[k + 1]]) for k in range(0, len(rows), 3)]


def _merges(a: Side, b: Side) -> Difference | None:
    of_a, of_b = _rules(a), _rules(b)
    if of_a == of_b:
        return None
    ranks_b = {rule: rank for rank, rule in enumerate(of_b)}
    in_a = set(of_a)
    only_a, only_b = [r for r in of_a if r not in ranks_b], [r for r in of_b if r not in in_a]
    turned, highest = [], -1
    for rule in of_a:
        rank = ranks_b.get(rule, highest)
        if rank < highest:
            turned.append(rule)
        highest = max(highest, rank)
    strings = _strings(a) | _strings(b)
    rules = [*only_a[: TRIES // 3], *only_b[: TRIES // 3], *turned]
    made = (strings.get(left + right, left + right) for left, right in rules)
    example, tried = _by_tokens(a, b, _in_contexts(made))
    facts = {
        "only_a": [list(rule) for rule in only_a[:LISTED]], "only_b": [list(rule) for rule in only_b[:LISTED]],
        "other_order": [list(rule) for rule in turned[:LISTED]],
        "count_a": len(only_a), "count_b": len(only_b), "count_other_order": len(turned),
    }  # fmt: skip
    summary = f"{len(only_a)} rules only in A, {len(only_b)} only in B, {len(turned)} after one that they precede in B"
    return Difference("merges", "ids", summary, facts, example, tried)


def _in_contexts(strings: Iterable[str]) -> Iterator[str]:
    for text in strings:
        if text:
            yield text
            yield f" {text}"
            yield f"x{text} {text}"


def _model(a: Side, b: Side) -> Difference | None:
    names = ("unk_token", "fuse_unk", "byte_fallback", "ignore_merges")
    settings = [{name: getattr(side.spec.model, name) for name in names} for side in (a, b)]
    changed = [name for name in names if settings[0][name] != settings[1][name]]
    if not changed:
        return None
    texts = _in_contexts([*_PROBES, "😀", "\u0e01\u0e02", "\ue000", *list(_strings(a).values())[: TRIES // 3]])
    example, tried = _by_tokens(a, b, texts)
    summary = ", ".join(f"{name} {settings[0][name]} and {settings[1][name]}" for name in changed)
    return Difference("model", "ids", summary, {"a": settings[0], "b": settings[1]}, example, tried)


# What is put around ids, and the way back


def _template(a: Side, b: Side) -> Difference | None:
    posts = [side.spec.post_processor.to_json() for side in (a, b)]
    sides = [(post["before"], post["after"]) for post in posts]
    if sides[0] == sides[1]:
        return None
    example, tried = _show(a, b, [""], lambda side, text: side.encoder.encode(text, True).ids)
    return Difference(
        "template", "ids with special tokens", "other special tokens around a text", {"a": posts[0], "b": posts[1]},
        example, tried,
    )  # fmt: skip


def _decoder(a: Side, b: Side) -> Difference | None:
    steps = [side.spec.decoder.to_json() for side in (a, b)]
    if steps[0] == steps[1]:
        return None
    example, tried = None, 0
    if a.spec.decoder.delegated is None and b.spec.decoder.delegated is None:
        example, tried = _show(a, b, _PROBES, lambda side, text: [side.program.decode(a.ids(text))])
    return Difference("decoder", "decoded text", "other steps", {"a": steps[0], "b": steps[1]}, example, tried)


def _lengths(a: Side, b: Side) -> Difference | None:
    stored = [
        {
            name: None if value is None else value.to_json()
            for name, value in (("truncation", side.spec.truncation), ("padding", side.spec.padding))
        }
        for side in (a, b)
    ]
    if stored[0] == stored[1]:
        return None
    example, tried = _show(a, b, ["hello", "hello world " * 5000], lambda side, text: side.ids(text)[-20:])
    return Difference(
        "lengths", "ids", "other stored truncation or padding", {"a": stored[0], "b": stored[1]}, example, tried
    )
