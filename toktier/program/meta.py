"""The META section: what a program says of itself, for `inspect`, `explain` and the Python side, not for the engine.

Not part of any identity: the fingerprint and the digest of the artifact stand in the header of the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toktier.errors import ProgramCorrupt
from toktier.program.layout import AddedFlag

if TYPE_CHECKING:  # a warm load reads META and needs no compiler
    from toktier.program.boundary import BoundaryTables
    from toktier.program.cuts import Cuts
    from toktier.program.token_automaton import TokenAutomaton
    from toktier.program.tokenizer_json import TokenizerSpec

SCHEMA = "toktier.program"
SCHEMA_VERSION = 1


def build_meta(
    spec: TokenizerSpec,
    *,
    compiler: str,
    boundary: BoundaryTables | None,
    automaton: TokenAutomaton | None,
    cuts: Cuts | None,
    statistics: Mapping[str, int | bool | str | None],
    n_ids: int,
) -> dict[str, Any]:
    """The document. `compiler`: digest of the compiler's sources and tables."""
    delegated = decode_delegation(spec)
    flags = Counter(placed.token.flags for placed in spec.added_tokens)
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "artifact": {"sha256": spec.sha256, "size": spec.size},
        "compiler": compiler,
        "normalizer": [step.to_json() for step in spec.normalizer],
        "pre_tokenizer": spec.pre_tokenizer.to_json(),
        "boundary": None if boundary is None else _boundary_json(boundary, automaton, cuts),
        "model": {
            "type": "BPE",
            "alphabet": "bytes" if spec.pre_tokenizer.byte_level else "characters",
            "vocabulary": len(spec.model.vocabulary),
            "ids": n_ids,
            "merges_written": spec.model.written_rules,
            "merges_live": statistics["live"],
            "merges_dead": spec.model.written_rules - int(statistics["live"] or 0),
            "merges_kept_unproved": statistics["kept_unproved"],
            "tokens_unreachable": statistics["unreachable"],
            "monotone": statistics["monotone"],
            "longest_piece": statistics["max_piece"],
            "inner_cuts": statistics["join"] is not None,
            "unk_token": spec.model.unk_token,
            "fuse_unk": spec.model.fuse_unk,
            "byte_fallback": spec.model.byte_fallback,
            "ignore_merges": spec.model.ignore_merges,
        },
        "added_tokens": {
            "count": flags.total(),
            "new": sum(placed.token.content not in spec.model.vocabulary for placed in spec.added_tokens),
            **{
                flag.name.lower(): sum(count for each, count in flags.items() if flag in each)
                for flag in AddedFlag
                if flag.name
            },
        },
        "special_tokens": [
            {"id": placed.id, "content": placed.token.content} for placed in spec.added_tokens if placed.token.special
        ],
        "post_processor": spec.post_processor.to_json(),
        "decoder": spec.decoder.to_json(),
        "decode": "native" if delegated is None else "reference",
        "decode_reason": None if delegated is None else {"path": delegated[0], "component": delegated[1]},
        "truncation": None if spec.truncation is None else spec.truncation.to_json(),
        "padding": None if spec.padding is None else spec.padding.to_json(),
    }


def decode_delegation(spec: TokenizerSpec) -> tuple[str, str] | None:
    """(JSON path, component) for which the reference must decode, or None."""
    if spec.decoder.delegated is not None:
        return spec.decoder.delegated
    for placed in spec.added_tokens:
        if placed.token.normalized:  # decoded differently by different versions of the reference
            return f"{placed.token.path}.normalized", "true"
    return None


def _boundary_json(tables: BoundaryTables, automaton: TokenAutomaton | None, cuts: Cuts | None) -> dict[str, Any]:
    from toktier.program.fingerprint import boundary_digest  # with it comes the compiler, which reading META must not

    return {
        "digest": boundary_digest(tables),
        "classes": tables.n_class,
        "left_states": tables.n_left,
        "right_states": tables.n_right,
        "token_states": None if automaton is None else automaton.n_state,
        "representatives": list(tables.representatives),
        "pair_cuts": None if cuts is None else sum(cuts.pair),
        "triple_cuts": None if cuts is None else sum(cuts.left_triple) + sum(cuts.right_triple),
    }


def read_meta(section: bytes | memoryview) -> dict[str, Any]:
    """The document of a program. Raises ProgramCorrupt when it is not what this version writes."""
    try:
        document = json.loads(bytes(section))
    except (ValueError, RecursionError):
        document = None
    known = isinstance(document, dict) and (document.get("schema"), document.get("schema_version"))
    if not isinstance(document, dict) or known != (SCHEMA, SCHEMA_VERSION):
        raise ProgramCorrupt("the program file does not hold: META is not what this version of toktier writes")
    return document
