"""The fingerprint: every change of a tokenizer.json that can change ids, offsets or decoding gives another one or is
refused, and other spellings of the same document give the same one.

Changes outside of vocabulary and merges are judged by the compiler's own readers and `fingerprint()`, over the merge
tables of the unchanged file: these enter it as digests of their own, so that tables left as they were can hide a change
and never make one up. What keeps the fingerprint must stand in WITHOUT_EFFECT, with its reason; above quick the
reference must give the same too. Changes of the model are compiled, a sample of them below exhaustive.
"""

from __future__ import annotations

import json
import random
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toktier.certify.fingerprint_mutants import (
    SPELLINGS,
    Mutant,
    backwards,
    other_spelling_of_merges,
    sampled_tokens,
    walk,
)
from toktier.certify.levels import Level
from toktier.certify.suite import Suite, SuitePlan
from toktier.certify.suites.cases import cases
from toktier.errors import ToktierError
from toktier.program.boundary import BoundaryTables, Stage, compile_boundaries
from toktier.program.bpe_model import BpeModel, read_model
from toktier.program.bpe_sections import BpeSections, bpe_sections
from toktier.program.compile import character_sections, compile_tokenizer
from toktier.program.file import read_program
from toktier.program.fingerprint import boundary_digest, fingerprint
from toktier.program.layout import CONF_FIELDS, Conf, Flag
from toktier.program.normalizer import normalizer_sections
from toktier.program.strict_json import parse_json
from toktier.program.tokenizer_json import TokenizerSpec, read_parsed, read_tokenizer

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

ADDED_TOKENS = {Level.QUICK: 6, Level.STANDARD: 40, Level.EXHAUSTIVE: 400}
MODEL_CHANGES = {Level.QUICK: 4, Level.STANDARD: 16, Level.EXHAUSTIVE: 200}  # compiled: about a second each
COMPILED_WHOLE = {Level.QUICK: 0, Level.STANDARD: 4, Level.EXHAUSTIVE: 60}  # of the others, to hold the short way to it
PER_BLOCK = 100
REFERENCE_TEXTS = 200
CHANGED_OR_REFUSED = "changed or refused"


@dataclass(frozen=True)
class _Base:
    """The unchanged file, read once."""

    document: Mapping[str, Any]
    spec: TokenizerSpec
    bpe: BpeSections
    digest: str
    mutants: list[Mutant]
    rules: list[tuple[str, str]]  # those that can fire, in rank order
    places: dict[tuple[str, ...], int]  # of rules in the file; of one written twice the last counts
    dead: list[int]  # places of rules that can never fire
    boundaries: dict[Any, BoundaryTables] = field(default_factory=dict)


class FingerprintSuite(Suite):
    name = "fingerprint"
    of_tables = True
    meaning = (
        "every field of the tokenizer.json changed, entries dropped, doubled and exchanged: another fingerprint or a"
        " refusal, or a field on the list of those without effect; other spellings keep it"
    )

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        document = parse_json(subject.data, str(subject.path))
        spec = subject.spec
        bpe = _sections_of(spec)
        tokens = document.get("added_tokens") or []
        chosen = sampled_tokens(tokens, ADDED_TOKENS[level], seed)
        mutants = list(walk(document, chosen))
        base = _Base(document, spec, bpe, _short_way(spec, bpe, {}), mutants, *_rules_of(document, bpe))
        changes = MODEL_CHANGES[level]
        facts = {
            "fields": len({mutant.field for mutant in mutants}),
            "changes": len(mutants),
            "added_tokens_changed": len(chosen),
            "added_tokens": len(tokens),
            "model_changes_compiled": changes,
            "compiled_whole": min(COMPILED_WHOLE[level], len(mutants)),
            "spellings": 1 if level is Level.QUICK else len(_spellings(document)),
            "rows_without_effect": len(WITHOUT_EFFECT),
        }
        tasks: list[tuple[str, int, int]] = [("base", 0, 0)]
        tasks += [("walk", at, min(at + PER_BLOCK, len(mutants))) for at in range(0, len(mutants), PER_BLOCK)]
        tasks += [("model", at, at + 1) for at in range(changes)]
        tasks += [("spelling", at, at + 1) for at in range(facts["spellings"])]
        tasks += [("whole", at, at + 1) for at in range(facts["compiled_whole"])]
        if level is not Level.QUICK:
            tasks.append(("reference", 0, len(mutants)))
        return SuitePlan(len(tasks), facts, payload=(base, tasks))

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        base: _Base = plan.payload[0]
        task, begin, end = plan.payload[1][block]
        if task == "base":
            tally.check("fingerprint by the short way", "the unchanged file", base.digest, subject.fingerprint)
        elif task == "walk":
            for mutant in base.mutants[begin:end]:
                _check_walked(base, mutant, tally)
        elif task == "model":
            _check_model(base, *_model_change(base, begin, seed), tally)
        elif task == "spelling":
            _check_spelling(base, subject, begin, level, tally)
        elif task == "whole":
            for mutant in random.Random(f"{seed}:{begin}").sample(base.mutants, 1):
                _check_whole(base, mutant, tally)
        else:
            _check_reference(base, subject, tally)


# What became of a change


def _tables(boundaries: dict[Any, BoundaryTables], stages: tuple[Stage, ...]) -> BoundaryTables:
    return boundaries.get(stages) or boundaries.setdefault(stages, compile_boundaries(stages))


def _sections_of(spec: TokenizerSpec) -> BpeSections:
    pre = spec.pre_tokenizer
    return bpe_sections(spec.model, spec.added_tokens, byte_level=pre.byte_level, byte_runs=pre.byte_runs)


def _short_way(spec: TokenizerSpec, bpe: BpeSections, boundaries: dict[Any, BoundaryTables]) -> str:
    """The fingerprint of `spec` over merge tables that were built before."""
    stages = spec.pre_tokenizer.stages
    boundary = _tables(boundaries, stages) if stages else None
    conf = array("I", bytes(4 * CONF_FIELDS))
    for place, value in bpe.conf.items():
        conf[place] = value
    conf[Conf.FLAGS] = bpe.flags
    sections = {**bpe.sections, **normalizer_sections(spec.normalizer), **character_sections()}
    return fingerprint(spec, boundary, sections, conf, bpe.live_rules)


def _judged(base: _Base, mutant: Mutant) -> tuple[str, TokenizerSpec | None]:
    """ "changed", "refused", or "kept" with what was read."""
    return _judged_document(base, mutant.apply(base.document))


def _judged_document(base: _Base, document: Any) -> tuple[str, TokenizerSpec | None]:
    try:
        same_model = isinstance(document, dict) and document.get("model") is base.document["model"]
        model = base.spec.model if same_model else _model_of(base, document)
        spec = read_parsed(document, 0, "", model)
        bpe = base.bpe
        if model is not None and model is not base.spec.model and model != base.spec.model:
            bpe = _sections_of(spec)
        changed = _short_way(spec, bpe, base.boundaries) != base.digest
    except ToktierError:
        return "refused", None
    return ("changed", None) if changed else ("kept", spec)


def _model_of(base: _Base, document: Any) -> BpeModel | None:
    """The model with other switches: read from its other members, with the vocabulary and merges that were read before.
    None where the document has no model to read."""
    written = document.get("model") if isinstance(document, dict) else None
    if not isinstance(written, dict) or "vocab" not in written or "merges" not in written:
        return None
    small = read_model({**written, "vocab": {"a": 0}, "merges": []})
    switches = {name: getattr(small, name) for name in ("unk_token", "fuse_unk", "byte_fallback", "ignore_merges")}
    return replace(base.spec.model, **switches)


def _check_walked(base: _Base, mutant: Mutant, tally: Tally) -> None:
    outcome, spec = _judged(base, mutant)
    got = CHANGED_OR_REFUSED
    if outcome == "kept" and spec is not None and reason_to_keep(base, spec, mutant) is None:
        got = "kept, and the field is on no list"
    tally.check("change", mutant.name, got, CHANGED_OR_REFUSED)


# Why a change may keep the fingerprint: the changes (a pattern over the field and what was done), the reason, and what
# must hold of the file. A field on no row has an effect.


def _always(base: _Base, after: TokenizerSpec, mutant: Mutant) -> bool:
    return True


def _default(base: _Base, after: TokenizerSpec, mutant: Mutant) -> bool:
    value: Any = base.document
    for step in mutant.path:
        value = value[step]
    return value in (None, False, "", 0, "BPE")


def _equal(base: _Base, after: TokenizerSpec, mutant: Mutant) -> bool:
    return replace(base.spec, size=0, sha256="") == replace(after, size=0, sha256="")


def _untrimmed(base: _Base, after: TokenizerSpec, mutant: Mutant) -> bool:
    return not base.spec.post_processor.trim_offsets and not after.post_processor.trim_offsets


def _splits_alike(base: _Base, after: TokenizerSpec, mutant: Mutant) -> bool:
    one, two = base.spec.pre_tokenizer, after.pre_tokenizer
    if (one.byte_level, one.prefix_space, one.byte_runs) != (two.byte_level, two.prefix_space, two.byte_runs):
        return False
    return not one.stages or boundary_digest(_tables(base.boundaries, one.stages)) == boundary_digest(
        _tables(base.boundaries, two.stages)
    )


def _nothing_unknown(base: _Base, after: TokenizerSpec, mutant: Mutant) -> bool:
    model = after.model
    if Flag.ALL_BYTES in base.bpe.flags:
        return True
    if mutant.path[-1] == "fuse_unk":
        return model.unk_token is None
    return mutant.path[-1] == "byte_fallback" and not any(f"<0x{byte:02X}>" in model.vocabulary for byte in range(256))


_POST = r"post_processor(\.processors\[\])?"
_BPE_FIELDS = "type|dropout|unk_token|continuing_subword_prefix|end_of_word_suffix|fuse_unk|byte_fallback|ignore_merges"
Condition = Callable[[_Base, TokenizerSpec, Mutant], bool]
WITHOUT_EFFECT: tuple[tuple[str, str, Condition], ...] = (
    (r"added_tokens\[\]\.id set", "ids come from the vocabulary and the order; what is written is not read", _always),
    (r"added_tokens\[\] double", "a repetition counts once", _always),
    (r"added_tokens\[\] swap", "order means nothing where ids stay", _always),
    (
        r"decoder(\.decoders\[\])?\.(add_prefix_space|trim_offsets|use_regex) (set|drop)",
        "a byte-level decoder does nothing of this",
        _always,
    ),
    (r"pre_tokenizer(\.pretokenizers\[\])?\.trim_offsets set", "the post-processor alone trims offsets", _always),
    (_POST + r"\.use_regex (set|drop)", "the post-processor splits nothing", _always),
    (_POST + r"\.add_prefix_space set", "it says how offsets are trimmed, and they are not", _untrimmed),
    (_POST + r"\.pair\[\].*", "the template of two texts: here there is one", _always),
    (_POST + r"\.single\[\]\.\w+\.type_id set", "type ids are not given", _always),
    (_POST + r"\.special_tokens\..+\.id set", "a token of the template goes by its key", _always),
    (_POST + r"\.special_tokens\..*", "the template of one text does not name this token", _equal),
    (rf"model\.({_BPE_FIELDS}) drop", "the default was written", _default),
    (r"model\.(unk_token|fuse_unk|byte_fallback) set", "no character is left to be unknown", _nothing_unknown),
    (r"\w+ (drop|set to null)", "an absent part, or one that does nothing, was written", _equal),
    (r".*\[\] (drop|double|swap)", "a step that does nothing, or nothing more the second time", _equal),
    (r".*\.\w+ drop", "the default was written", _equal),
    (r"pre_tokenizer.*", "equal canonical tables: the same pre-tokenizer, spelled otherwise", _splits_alike),
)


def reason_to_keep(base: _Base, after: TokenizerSpec, mutant: Mutant) -> str | None:
    """Why a change may keep the fingerprint; None: it may not."""
    done = f"{mutant.field} {mutant.change}{' to null' if mutant.change == 'set' and mutant.value is None else ''}"
    for pattern, reason, holds in WITHOUT_EFFECT:
        if re.fullmatch(pattern, done) and holds(base, after, mutant):
            return reason
    return None


# The model


def _rules_of(
    document: Mapping[str, Any], bpe: BpeSections
) -> tuple[list[tuple[str, str]], dict[tuple[str, ...], int], list[int]]:
    names = {identity: token for token, identity in document["model"]["vocab"].items()}
    live = array("I", bpe.live_rules)
    rules = [(names[live[at]], names[live[at + 1]]) for at in range(0, len(live), 3)]
    merges = document["model"]["merges"]
    places = {
        tuple(rule.split(" ")) if isinstance(rule, str) else tuple(rule): place for place, rule in enumerate(merges)
    }
    return rules, places, sorted(set(places.values()) - {places[rule] for rule in rules})


def _model_change(base: _Base, number: int, seed: int) -> tuple[str, dict[str, Any], bool]:
    """Change `number` of the vocabulary or the merges, of each kind in turn: its name, the members that it changes, and
    whether the fingerprint must."""
    rng = random.Random(f"{seed}:model:{number}")
    vocabulary, merges = base.document["model"]["vocab"], base.document["model"]["merges"]
    kind = number % 4
    if kind == 1 and len(base.rules) > 1:
        first, second = sorted(base.places[rule] for rule in rng.sample(base.rules, 2))
        ranks = list(merges)
        ranks[first], ranks[second] = ranks[second], ranks[first]
        return f"ranks {first} and {second} exchanged", {"merges": ranks}, True
    if kind == 2 and base.rules:
        gone = base.places[rng.choice(base.rules)]
        return f"rule {gone} dropped", {"merges": [*merges[:gone], *merges[gone + 1 :]]}, True
    if kind == 3 and base.dead:
        gone = rng.choice(base.dead)
        return f"rule {gone}, which cannot fire, dropped", {"merges": [*merges[:gone], *merges[gone + 1 :]]}, False
    if kind == 3 or len(vocabulary) < 2:
        identity = 1 + max(vocabulary.values())
        return "a token added", {"vocab": {**vocabulary, f"zz{number}{rng.random()}": identity}}, True
    one, two = rng.sample(list(vocabulary), 2)
    changed = {**vocabulary, one: vocabulary[two], two: vocabulary[one]}
    return f"ids of {one[:20]!a} and {two[:20]!a} exchanged", {"vocab": changed}, True


def _check_model(base: _Base, name: str, members: dict[str, Any], must_change: bool, tally: Tally) -> None:
    document = {**base.document, "model": {**base.document["model"], **members}}
    try:
        spec = read_parsed(document, 0, "")
        got = "changed" if _short_way(spec, _sections_of(spec), base.boundaries) != base.digest else "kept"
    except ToktierError:
        got = "changed"  # refused
    tally.check("change of the model", name, got, "changed" if must_change else "kept")


# Whole files


def _spellings(document: Mapping[str, Any]) -> list[str]:
    names = [*SPELLINGS, "keys in the opposite order"]
    return names if other_spelling_of_merges(document) is None else [*names, "merges spelled the other way"]


def _check_spelling(base: _Base, subject: Subject, number: int, level: Level, tally: Tally) -> None:
    """At quick all at once, compiled; else one by one: compiled where order changes, else what is read is compared."""
    if level is Level.QUICK:
        respelled = other_spelling_of_merges(base.document) or base.document
        data = SPELLINGS["non-ASCII characters escaped"](backwards(respelled)) + b"\r\n"
        got = read_program(compile_tokenizer(data)).fingerprint
        tally.check("spelling", "keys backwards, escapes, merges the other way", got, subject.fingerprint)
        return
    name = _spellings(base.document)[number]
    if name in SPELLINGS:
        read = replace(read_tokenizer(SPELLINGS[name](base.document)), size=0, sha256="")
        same = read == replace(base.spec, size=0, sha256="")
        same = same and list(read.model.vocabulary) == list(base.spec.model.vocabulary)
        tally.check("spelling", name, same, True)
        return
    respelled = backwards(base.document) if number == len(SPELLINGS) else other_spelling_of_merges(base.document)
    got = read_program(compile_tokenizer(json.dumps(respelled).encode())).fingerprint
    tally.check("spelling", name, got, subject.fingerprint)


def _check_whole(base: _Base, mutant: Mutant, tally: Tally) -> None:
    """A whole compilation decides as the short way does."""
    outcome, _ = _judged(base, mutant)
    try:
        data = json.dumps(mutant.apply(base.document)).encode()
        found = read_program(compile_tokenizer(data)).fingerprint
        got = "kept" if found == base.digest else "changed"
    except ToktierError:
        got = "refused"
    tally.check("compiled whole", mutant.name, got != "kept", outcome != "kept")


def _check_reference(base: _Base, subject: Subject, tally: Tally) -> None:
    """All changes that keep the fingerprint, one a place, in one file: the reference gives what it gave."""
    from tokenizers import Tokenizer as Reference

    document: Any = base.document
    places: set[tuple[str | int, ...]] = set()
    for mutant in base.mutants:
        beside = not any(mutant.path[: len(p)] == p or p[: len(mutant.path)] == mutant.path for p in places)
        if mutant.change == "set" and beside and _judged(base, mutant)[0] == "kept":
            more = mutant.apply(document)
            if _judged_document(base, more)[0] == "kept":  # two that are harmless alone need not be so together
                places.add(mutant.path)
                document = more
    other = Reference.from_buffer(json.dumps(document).encode())
    texts: Sequence[str] = [text for _, text in cases()][:: max(1, len(cases()) // REFERENCE_TEXTS)]
    for text in texts:
        for add_special_tokens in (False, True):
            one, two = (r.encode(text, add_special_tokens=add_special_tokens) for r in (subject.reference, other))
            decoded = [r.decode(one.ids, skip_special_tokens=False) for r in (subject.reference, other)]
            same = (one.ids, one.offsets, decoded[0]) == (two.ids, two.offsets, decoded[1])
            tally.check(f"the reference after {len(places)} changes", ascii(text[:60]), same, True)
