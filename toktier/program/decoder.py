"""The decoder of a tokenizer.json: the steps that the engine runs, or the reason why the reference decodes.

A decoder that is not understood does not stop a program: ids and offsets do not depend on it. The program then says
that decoding is left to the reference. Not here: decoding (native/engine).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toktier.program.byte_trie import little_endian
from toktier.program.json_fields import MAX_U32, MAX_U64, Fields, components, malformed, pattern, unsupported_type
from toktier.program.layout import DecoderOp


@dataclass(frozen=True)
class DecoderStep:
    """Replace: every `text` becomes `replacement`. Strip: up to `start` leading and `stop` trailing `text`s."""

    op: DecoderOp
    text: str = ""
    replacement: str = ""
    start: int = 0
    stop: int = 0

    def to_json(self) -> dict[str, Any]:
        """For `inspect` and the fingerprint."""
        if self.op is DecoderOp.REPLACE:
            return {"type": "Replace", "text": self.text, "replacement": self.replacement}
        if self.op is DecoderOp.STRIP:
            return {"type": "Strip", "text": self.text, "start": self.start, "stop": self.stop}
        return {
            "type": {DecoderOp.BYTE_LEVEL: "ByteLevel", DecoderOp.BYTE_FALLBACK: "ByteFallback"}.get(self.op, "Fuse")
        }


@dataclass(frozen=True)
class Decoder:
    """`steps` for the engine, or None for no decoder at all (tokens joined by a blank). `delegated`: the JSON path and
    component for which the reference must decode, with the decoder as the file has it."""

    steps: tuple[DecoderStep, ...] | None
    delegated: tuple[str, str] | None = None
    written: Any = None

    def to_json(self) -> Any:
        """For `inspect` and the fingerprint."""
        if self.delegated is not None:
            return {"type": "reference", "written": self.written}
        return None if self.steps is None else [step.to_json() for step in self.steps]


def read_decoder(value: Any, path: str = "decoder") -> Decoder:
    """Raises NotATokenizer for what the reference cannot load, ProgramUnsupported for what nobody understands."""
    if value is None:
        return Decoder(None)
    reader = _Reader()
    for fields, kind in components(value, path, "decoders"):
        reader.read(fields, kind)
    if reader.delegated is not None:
        return Decoder((), reader.delegated, value)
    return Decoder(tuple(reader.steps))


class _Reader:
    def __init__(self) -> None:
        self.steps: list[DecoderStep] = []
        self.delegated: tuple[str, str] | None = None

    def read(self, fields: Fields, kind: str) -> None:
        if kind == "ByteLevel":
            fields.boolean("add_prefix_space")
            fields.boolean("trim_offsets")
            fields.boolean("use_regex", True)
            self.steps.append(DecoderStep(DecoderOp.BYTE_LEVEL))
        elif kind == "ByteFallback":
            self.steps.append(DecoderStep(DecoderOp.BYTE_FALLBACK))
        elif kind == "Fuse":
            self.steps.append(DecoderStep(DecoderOp.FUSE))
        elif kind == "Replace":
            spelling, text = pattern(fields)
            replacement = fields.string("content")
            if spelling == "Regex" or not text:
                self._delegate(f"{fields.place('pattern')}.{spelling}", "a pattern that is no literal")
            self.steps.append(DecoderStep(DecoderOp.REPLACE, text, replacement))
        elif kind == "Strip":
            text = _character(fields, "content")
            start, stop = fields.integer("start", MAX_U64), fields.integer("stop", MAX_U64)
            if stop:  # the reference panics on a token of fewer characters than that
                self._delegate(fields.place("stop"), str(stop))
            self.steps.append(DecoderStep(DecoderOp.STRIP, text, start=min(start, MAX_U32), stop=min(stop, MAX_U32)))
        elif kind in _DELEGATED:
            for name, take in _DELEGATED[kind].items():
                if fields.has(name):
                    take(fields, name)
            self._delegate(fields.place("type"), kind)
        else:
            raise unsupported_type(fields, kind)

    def _delegate(self, path: str, component: str) -> None:
        self.delegated = self.delegated or (path, component)


def _character(fields: Fields, name: str) -> str:
    text = fields.string(name)
    if len(text) != 1:
        raise malformed(fields.place(name), "one character", text)
    return text


def _boolean_or_null(fields: Fields, name: str) -> None:
    value = fields.take(name)
    if value is not None and not isinstance(value, bool):
        raise malformed(fields.place(name), "true, false or null", value)


# Decoders of the reference that the engine has not, with the types of their fields.
_DELEGATED: dict[str, dict[str, Callable[[Fields, str], Any]]] = {
    "BPEDecoder": {"suffix": Fields.string},
    "CTC": {"pad_token": Fields.string, "word_delimiter_token": Fields.string, "cleanup": Fields.boolean},
    "Metaspace": {
        "replacement": _character,
        "add_prefix_space": Fields.boolean,
        "prepend_scheme": Fields.string,
        "split": _boolean_or_null,
        "str_rep": Fields.string,
    },
    "WordPiece": {"prefix": Fields.string, "cleanup": Fields.boolean},
}


def decoder_sections(decoder: Decoder) -> dict[str, bytes]:
    """DOPS and DSTR."""
    strings = bytearray()
    records = array("I")
    for step in decoder.steps or ():
        row = [int(step.op)]
        for text in (step.text, step.replacement):
            data = text.encode("utf-8")
            row += [len(strings), len(data)]
            strings += data
        if step.op is DecoderOp.STRIP:
            row[3:] = [step.start, step.stop]
        records.extend(row)
    return {"DOPS": little_endian(records), "DSTR": bytes(strings)}
