"""Which decoders the engine runs, and for which the reference decodes."""

from __future__ import annotations

import itertools
import json
import struct
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from toktier.program.compile import compile_tokenizer
from toktier.program.decoder import Decoder, DecoderStep, decoder_sections, read_decoder
from toktier.program.file import ProgramFile, read_program
from toktier.program.layout import Conf, DecoderOp, Flag
from toktier.program.meta import read_meta

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}


def program_of(decoder: Any, name: str = "llama_like", **changes: Any) -> ProgramFile:
    document = maker.changed(maker.small(name), decoder=decoder, **changes)
    Tokenizer.from_str(json.dumps(document))
    return read_program(compile_tokenizer(maker.encoded(document)))


def test_steps_come_in_order() -> None:
    read = read_decoder(
        {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Sequence", "decoders": [{"type": "Fuse"}, BYTE_LEVEL]},
                {"type": "Strip", "content": " ", "start": 2**40, "stop": 0},
            ],
        }
    )
    assert read == Decoder(
        (
            DecoderStep(DecoderOp.REPLACE, "▁", " "),
            DecoderStep(DecoderOp.BYTE_FALLBACK),
            DecoderStep(DecoderOp.FUSE),
            DecoderStep(DecoderOp.BYTE_LEVEL),
            DecoderStep(DecoderOp.STRIP, " ", start=2**32 - 1),
        )
    )
    sections = decoder_sections(read)
    rows = struct.unpack("<25I", sections["DOPS"])
    assert rows[:5] == (DecoderOp.REPLACE, 0, 3, 3, 1)
    assert rows[20:] == (DecoderOp.STRIP, 4, 1, 2**32 - 1, 0)
    assert sections["DSTR"] == "▁  ".encode()


DELEGATED = {
    "Metaspace": ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, "decoder.type"),
    "WordPiece": ({"type": "WordPiece", "prefix": "##", "cleanup": True}, "decoder.type"),
    "CTC": (
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        "decoder.type",
    ),
    "BPEDecoder": ({"type": "BPEDecoder", "suffix": "</w>"}, "decoder.type"),
    "a regex": ({"type": "Replace", "pattern": {"Regex": "▁"}, "content": " "}, "decoder.pattern.Regex"),
    "an empty pattern": ({"type": "Replace", "pattern": {"String": ""}, "content": "-"}, "decoder.pattern.String"),
    "Strip at the end": ({"type": "Strip", "content": " ", "start": 0, "stop": 1}, "decoder.stop"),
    "inside a Sequence": (
        {"type": "Sequence", "decoders": [BYTE_LEVEL, {"type": "WordPiece", "prefix": "", "cleanup": False}]},
        "decoder.decoders[1].type",
    ),
}


@pytest.mark.parametrize("case", DELEGATED)
def test_other_decoders_are_left_to_the_reference(case: str) -> None:
    decoder, path = DELEGATED[case]
    program = program_of(decoder)
    meta = read_meta(program.section("META"))
    assert meta["decode"] == "reference"
    assert meta["decode_reason"]["path"] == path
    assert program.fingerprint != program_of(None).fingerprint


def test_normalized_added_tokens_are_decoded_by_the_reference() -> None:
    program = program_of(BYTE_LEVEL, "cl100k_like", added_tokens=[maker.added("x"), maker.added("y", normalized=True)])
    meta = read_meta(program.section("META"))
    assert meta["decode"] == "reference"
    assert meta["decode_reason"] == {"path": "added_tokens[1].normalized", "component": "true"}


def test_no_decoder_is_not_an_empty_one() -> None:
    for decoder, none in ((None, True), ({"type": "Sequence", "decoders": []}, False)):
        program = program_of(decoder)
        flags = Flag(program.section("CONF").cast("I")[Conf.FLAGS])
        assert (Flag.NO_DECODER in flags) == none
        assert read_meta(program.section("META"))["decode"] == "native"


def test_bytes_of_every_id_are_laid_out_for_a_lone_byte_level() -> None:
    program = program_of(BYTE_LEVEL, "cl100k_like")
    reference = Tokenizer.from_str(json.dumps(maker.changed(maker.small("cl100k_like"), decoder=BYTE_LEVEL)))
    starts, data = program.section("DBYO").cast("I"), bytes(program.section("DBYT"))
    decoded = [data[a:b] for a, b in itertools.pairwise(starts)]
    assert len(decoded) == reference.get_vocab_size()
    for identity, text in enumerate(decoded):
        assert text.decode("utf-8", "replace") == reference.decode([identity], skip_special_tokens=False)
    assert not program_of({"type": "Sequence", "decoders": [BYTE_LEVEL, {"type": "Fuse"}]}).section("DBYT")
