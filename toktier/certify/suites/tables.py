"""The character tables that programs are made of, probed again from the installed reference over all code points.

Quick takes the tables that this tokenizer's program rests on: sets of its patterns, case folds of their literals, its
normal form, what its other components take a character for. Above quick: every table of tables/unicode, used or not,
by the probes that made them (`unicode_probes`). A table is one check: its size and its digest.

Not here: what a tokenizer does with them (`code_points`, `normalization`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toktier.certify.levels import Level
from toktier.certify.suite import Suite, SuitePlan
from toktier.program import unicode
from toktier.program.class_map import Complement, Intersection, Spans, Table, Union, table_ranges
from toktier.program.layout import AddedFlag, NormalizerOp
from toktier.program.normalizer import UNICODE_FORMS, NormalizerStep, normalize
from toktier.program.regex_syntax import parse
from toktier.program.regex_tree import Alternation, Atomic, Chars, Concat, Look, Node, Repeat

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally
    from toktier.program.class_map import CodePointSet

NAMES_IN_BLOCK = 12  # properties, each inside brackets and alone: 50 ms a sweep
FORMS = ("NFC", "NFKC", "NFD", "NFKD")

_PLACES = ("bracketed", "alone")

_Map = Mapping[Any, Any]
_Pairs = Iterator[tuple[str, Any, Any]]  # name, ours, the reference's: ranges or maps


@dataclass(frozen=True, slots=True)
class _Probe:
    """`pairs`: tables with their names, ours and the reference's. `names`: what the facts call them."""

    names: tuple[str, ...]
    pairs: Callable[[], _Pairs]


class TablesSuite(Suite):
    name = "tables"
    of_tables = True
    meaning = (
        "character tables against the installed reference over all code points: those that this program rests on, and "
        "above quick every table that is shipped, by the probes that made them"
    )

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        probes = used_probes(subject) if level is Level.QUICK else all_probes()
        names = [name for probe in probes for name in probe.names]
        facts: dict[str, Any] = {"code_points": 0x110000 - 0x800, "tables": len(names)}
        facts |= {f"{name.removesuffix('.json')}_digest": digest for name, digest in unicode.table_digests().items()}
        if level is Level.QUICK:
            facts["names"] = ", ".join(names)
        why = None if probes else "the program rests on no character table"
        return SuitePlan(len(probes), facts, why, probes)

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        from toktier.certify.unicode_probes.sweep import ProbeError

        probe = plan.payload[block]
        try:
            for name, ours, theirs in probe.pairs():
                compare(tally, name, ours, theirs)
        except (ProbeError, KeyError) as fault:
            tally.check("table", ", ".join(probe.names), f"{type(fault).__name__}: {fault}", "a table")


def compare(tally: Tally, name: str, ours: Any, theirs: Any) -> None:
    """One check: sets as ranges, maps as they are."""
    ours, theirs = _plain(ours), _plain(theirs)
    expected = _summary(theirs)
    got = expected if ours == theirs else f"{_summary(ours)}, first difference {_first_difference(ours, theirs)}"
    tally.check("table", name, got, expected)


def _plain(table: Any) -> Any:
    """A sorted list of entries: ranges as tuples, items of a map."""
    if isinstance(table, Mapping):
        return sorted((key, tuple(value) if isinstance(value, list) else value) for key, value in table.items())
    return [tuple(entry) for entry in table] if not isinstance(table, str) else list(table)


def _summary(entries: list[Any]) -> str:
    return f"{len(entries)} entries, sha256 {hashlib.sha256(repr(entries).encode()).hexdigest()}"


def _first_difference(ours: list[Any], theirs: list[Any]) -> str:
    one, other = set(ours), set(theirs)
    return ascii(min(one ^ other, key=lambda entry: str(entry[0]).zfill(8), default="the order"))


# Every table


def all_probes() -> list[_Probe]:
    from toktier.certify.unicode_probes import properties

    groups = [properties.known_names(text) for text in (properties.GENERAL_CATEGORIES, properties.BINARY_PROPERTIES)]
    names = [known[0] for group in groups for known in group]
    scripts = [known[0] for known in properties.known_names(properties.SCRIPTS)]
    probes = [_Probe(tuple(names[i : i + NAMES_IN_BLOCK]), _properties(names[i : i + NAMES_IN_BLOCK]))
              for i in range(0, len(names), NAMES_IN_BLOCK)]  # fmt: skip
    probes += [_Probe(tuple(f"{name}, {where}" for name in scripts), _scripts(scripts, where)) for where in _PLACES]
    probes.append(_Probe(("aliases",), _aliases))
    shorthands = _shorthand_names()
    probes.append(_Probe(tuple(map(table_name, shorthands)), lambda: _sets(shorthands)))
    probes += [_character_probe(name) for name in _CHARACTERS]
    probes += [_Probe(("case folds",), _all_folds), _Probe(FORMS, _all_forms)]
    return probes


def _properties(names: list[str]) -> Callable[[], _Pairs]:
    return lambda: _sets([Table("property", name, bracketed) for name in names for bracketed in (True, False)])


def _scripts(names: list[str], where: str) -> Callable[[], _Pairs]:
    def pairs() -> _Pairs:
        from toktier.certify.unicode_probes.properties import one_of_each

        bracketed = where == "bracketed"
        for name, theirs in one_of_each(names, bracketed=bracketed).items():
            yield f"{name}, {where}", unicode.property_ranges(name, bracketed=bracketed), theirs

    return pairs


def _aliases() -> _Pairs:
    """Names of one property, and that the reference knows no other."""
    from toktier.certify.unicode_probes import properties

    texts = (properties.GENERAL_CATEGORIES, properties.SCRIPTS, properties.BINARY_PROPERTIES)
    groups = [group for text in texts for group in properties.known_names(text)]
    properties.check_aliases(groups)
    for canonical, *aliases in groups:
        for alias in aliases:
            yield f"{alias} = {canonical}", unicode.property_ranges(alias), unicode.property_ranges(canonical)


def _shorthand_names() -> list[Table]:
    from toktier.certify.unicode_probes import properties

    letters = [Table("shorthand", letter, bracketed) for letter in properties.SHORTHANDS for bracketed in (True, False)]
    return letters + [Table("posix", name) for name in properties.POSIX_BRACKETS.split()]


def _sets(tables: Iterable[Table]) -> _Pairs:
    from toktier.certify.unicode_probes.sweep import matched_by

    for table in tables:
        yield table_name(table), table_ranges(table), matched_by(_pattern(table))


def table_name(table: Table) -> str:
    """As a pattern spells it."""
    return f"numeric or punctuation: {table.name}" if table.kind == "char_set" else _pattern(table)


def _pattern(table: Table) -> str:
    if table.kind == "posix":
        return f"[[:{table.name}:]]"
    spelled = rf"\p{{{table.name}}}" if table.kind == "property" else f"\\{table.name}"
    return f"[{spelled}]" if table.bracketed else spelled


_CHARACTERS: dict[str, Callable[[], Any]] = {
    "numeric": unicode.numeric,
    "punctuation": unicode.punctuation,
    "word": unicode.rust_word,
    "white_space": unicode.white_space,
    "lowercase": unicode.lowercase,
    "byte_alphabet": unicode.byte_alphabet,
}


def _character_probe(name: str) -> _Probe:
    def pairs() -> _Pairs:
        from toktier.certify.unicode_probes import characters

        ours, theirs = _CHARACTERS[name](), getattr(characters, name)()
        if name == "byte_alphabet":
            ours, theirs = dict(enumerate(ours)), dict(enumerate(theirs))
        yield name, ours, theirs

    return _Probe((name,), pairs)


def _all_folds() -> _Pairs:
    from toktier.certify.unicode_probes import folds

    partners, literals = folds.probe()
    yield "fold partners", {cp: p for cp in range(0x110000) if len(p := unicode.fold_partners(cp)) > 1}, partners
    yield "multi-character folds", unicode.multi_character_folds(), literals


def _all_forms() -> _Pairs:
    from toktier.certify.unicode_probes import normalization

    found = normalization.probe()
    classes = unicode.normalization("NFD").ccc
    yield "combining classes", classes, found.combining_classes
    canonical = _without_hangul(unicode.normalization("NFD").decompositions)
    compatibility = _without_hangul(unicode.normalization("NFKD").decompositions)
    yield "canonical decompositions", canonical, _sequences(found.canonical)
    ours = {cp: parts for cp, parts in compatibility.items() if canonical.get(cp) != parts}
    yield "compatibility decompositions", ours, _sequences(found.compatibility)
    composites = {whole: pair for pair, whole in unicode.normalization("NFC").compositions.items()}
    yield "compositions", _without_hangul(composites), found.compositions
    for form in FORMS:
        tables = unicode.normalization(form)
        yield f"{form}: not inert", tables.not_inert, found.not_inert[form]
        yield f"{form}: no boundary before", tables.no_boundary_before, found.no_boundary_before[form]


def _without_hangul(table: _Map) -> dict[Any, Any]:
    return {cp: value for cp, value in table.items() if not 0xAC00 <= cp <= 0xD7A3}


def _sequences(table: Mapping[int, str]) -> dict[int, tuple[int, ...]]:
    return {cp: tuple(map(ord, text)) for cp, text in table.items()}


# The tables that one program rests on


def used_probes(subject: Subject) -> list[_Probe]:
    """One table a block."""
    spec = subject.spec
    tables: dict[Table, None] = {}
    folded: dict[int, None] = {}
    for stage in spec.pre_tokenizer.stages:
        if stage.char_set is not None:
            tables[Table("char_set", stage.char_set)] = None
        tree = parse(stage.pattern) if stage.pattern is not None else stage.tree
        if tree is not None:
            for chars in _chars(tree):
                tables.update(dict.fromkeys(_tables(chars.set)))
                folded.update(dict.fromkeys(chars.folded))
    characters = {table.name for table in tables if table.kind == "char_set"}
    if spec.pre_tokenizer.byte_level:
        characters.add("byte_alphabet")
    flags = {flag for placed in spec.added_tokens for flag in placed.token.flags}
    steps = {step.op for step in spec.normalizer}
    if flags & {AddedFlag.LSTRIP, AddedFlag.RSTRIP} or NormalizerOp.STRIP in steps:
        characters.add("white_space")
    if AddedFlag.SINGLE_WORD in flags:
        characters.add("word")
    if NormalizerOp.LOWERCASE in steps:
        characters.add("lowercase")
    sets = [table for table in tables if table.kind != "char_set"]
    probes = [_Probe((table_name(table),), _one_set(table)) for table in sets]
    if folded:
        probes.append(_Probe(tuple(f"(?i:U+{cp:04X})" for cp in sorted(folded)), _folds_of(sorted(folded))))
    probes += [_character_probe(name) for name in _CHARACTERS if name in characters]
    probes += [_Probe((UNICODE_FORMS[op],), _form(op)) for op in UNICODE_FORMS if op in steps]
    return probes


def _one_set(table: Table) -> Callable[[], _Pairs]:
    return lambda: _sets([table])


def _folds_of(code_points: list[int]) -> Callable[[], _Pairs]:
    def pairs() -> _Pairs:
        from toktier.certify.unicode_probes.folds import escaped
        from toktier.certify.unicode_probes.sweep import matched_by, members

        for cp in code_points:
            theirs = members(matched_by(f"(?i:{escaped(chr(cp))})"))
            yield f"(?i:U+{cp:04X})", [(c, c) for c in unicode.fold_partners(cp)], [(c, c) for c in theirs]

    return pairs


def _form(op: NormalizerOp) -> Callable[[], _Pairs]:
    """What the form makes of each character alone, and that nothing outside of its tables looks backwards."""

    def pairs() -> _Pairs:
        from toktier.certify.unicode_probes import normalization

        form = UNICODE_FORMS[op]
        step, tables = NormalizerStep(op, ""), unicode.normalization(form)
        candidates = (chr(cp) for low, high in tables.not_inert for cp in range(low, high + 1))
        made = {c: normalize((step,), c) for c in candidates}
        ours = {ord(c): text for c, text in made.items() if text != c}
        yield f"{form}, each character alone", ours, normalization.changed_alone(form)
        normalization.check_no_boundary(form, list(tables.no_boundary_before))
        agreed = tables.no_boundary_before  # else the probe has raised: the table may hold more than is needed
        yield f"{form}, no boundary before", agreed, agreed

    return pairs


def _chars(node: Node) -> Iterator[Chars]:
    match node:
        case Chars():
            yield node
        case Concat(parts) | Alternation(parts):
            for part in parts:
                yield from _chars(part)
        case Repeat(body) | Atomic(body) | Look(body):
            yield from _chars(body)


def _tables(chars: CodePointSet) -> Iterator[Table]:
    match chars:
        case Table():
            yield chars
        case Union(parts) | Intersection(parts):
            for part in parts:
                yield from _tables(part)
        case Complement(part):
            yield from _tables(part)
        case Spans():
            return
