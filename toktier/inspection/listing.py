"""The long tables of a program as lists of plain values: added tokens, cuts by representative, tokens out of reach.

Read from the program itself, so no compiler is needed. Not here: what is short enough for META.
"""

from __future__ import annotations

import struct
from typing import Any

from toktier.program.file import Buffer, ProgramFile, read_program
from toktier.program.layout import AddedFlag, TokenFlag

_SPELLED_BY = {"regex": "pattern", "literal": "literal", "set": "char_set"}


def listing(image: Buffer, meta: dict[str, Any]) -> dict[str, Any]:
    """Members: `added_tokens` by id, with flags; `cuts`: the classes' representatives (code points) and a row for each
    class in front, "|" where a text may be cut before the class of the column; `unreachable_tokens`: of the model's
    vocabulary, by id, those that no merge makes, and whether a piece may still be looked up as one."""
    program = read_program(image, verify_digest=False)
    names = _Names(program)
    # As numbers: operations on flags cost a microsecond each, and there is a token for every id.
    model, reachable, whole_piece = int(TokenFlag.MODEL), int(TokenFlag.REACHABLE), int(TokenFlag.WHOLE_PIECE)
    return {
        "added_tokens": [
            {
                "id": identity,
                "content": names.text(identity),
                **{flag.name.lower(): flag in AddedFlag(flags) for flag in AddedFlag if flag.name},
            }
            for identity, flags, _, _ in sorted(struct.iter_unpack("<4I", _section(program, "ATOK")))
        ],
        "cuts": _cuts(program, meta),
        "unreachable_tokens": [
            {"id": identity, "token": names.text(identity), "whole_piece": bool(flags & whole_piece)}
            for identity, flags in enumerate(_section(program, "TFLG"))
            if flags & model and not flags & reachable
        ],
    }


def stages(meta: dict[str, Any]) -> list[dict[str, Any]]:
    """The automata of each split stage alone, in order: `path`, `classes`, `left_states`, `right_states`; None
    for steps over bytes, which META does not spell. Needs the compiler."""
    from toktier.program.boundary import Stage, compile_boundaries

    listed: list[dict[str, Any]] = []
    for stage in meta["pre_tokenizer"]["stages"]:
        spelled = _SPELLED_BY.get(stage["kind"])
        sizes: dict[str, Any] = {"classes": None, "left_states": None, "right_states": None}
        if spelled is not None:
            own = {spelled: stage["pattern"], "behavior": stage["behavior"], "invert": stage["invert"]}
            tables = compile_boundaries([Stage(stage["path"], **own)])
            sizes = {"classes": tables.n_class, "left_states": tables.n_left, "right_states": tables.n_right}
        listed.append({"path": stage["path"], **sizes})
    return listed


def _cuts(program: ProgramFile, meta: dict[str, Any]) -> dict[str, Any] | None:
    boundary = meta["boundary"]
    if boundary is None or boundary["pair_cuts"] is None:
        return None
    pairs, n = _section(program, "CUT2"), boundary["classes"]
    rows = ["".join("|" if cut else "." for cut in pairs[a * n : (a + 1) * n]) for a in range(n)]
    return {"representatives": boundary["representatives"], "pairs": rows}


class _Names:
    """Token strings by id."""

    def __init__(self, program: ProgramFile) -> None:
        self._starts = _section(program, "STRO")
        self._bytes = _section(program, "STRB")

    def text(self, identity: int) -> str:
        start, end = struct.unpack_from("<2I", self._starts, identity * 4)
        return self._bytes[start:end].decode("utf-8")


def _section(program: ProgramFile, tag: str) -> bytes:
    return bytes(program.section(tag))
