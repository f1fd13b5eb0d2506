"""Hostile texts (toktier/certify/hostile_texts.py) against the reference: ids, offsets, tokens, plain mode."""

from __future__ import annotations

import tokenizers

from tests.conformance.adapter import assert_only_native, encode_natively
from tests.conformance.corpus import Report
from toktier import Tokenizer
from toktier.certify.hostile_texts import hostile_texts


def compare_hostile(tokenizer: Tokenizer, reference: tokenizers.Tokenizer, count: int, seed: str) -> Report:
    """Ids and offsets with and without special tokens, and in plain mode: the reference is set so and back, since to
    load a second one takes longer than to compare a thousand texts."""
    report = Report()
    for text in hostile_texts(added_contents(reference), count, seed):
        name = ascii(text)
        for add_special in (False, True):
            got = encode_natively(tokenizer, text, add_special)
            expected = reference.encode(text, add_special_tokens=add_special)
            if got.ids != expected.ids:
                report.differ(f"ids (add_special_tokens={add_special})", name, got.ids, expected.ids)
            elif got.offsets != expected.offsets:
                report.differ(f"offsets (add_special_tokens={add_special})", name, got.offsets, expected.offsets)
            elif got.tokens != expected.tokens:
                report.differ(f"tokens (add_special_tokens={add_special})", name, got.tokens, expected.tokens)
            report.ids += len(expected.ids)
        reference.encode_special_tokens = True
        ordinary, asked = reference.encode(text, add_special_tokens=False), tokenizer.encode(text, plain=True)
        reference.encode_special_tokens = False
        if (asked.ids, asked.offsets) != (ordinary.ids, ordinary.offsets):
            report.differ("plain", name, asked.ids, ordinary.ids)
        if tokenizer.count(text, plain=True) != len(ordinary.ids):
            report.differ("count of plain", name, tokenizer.count(text, plain=True), len(ordinary.ids))
        report.documents += 1
        report.bytes += len(text.encode())
        report.code_points += len(text)
    assert_only_native(tokenizer)
    return report


def added_contents(reference: tokenizers.Tokenizer) -> list[str]:
    """Contents of the added tokens of a reference, by id."""
    return [token.content for token in reference.get_added_tokens_decoder().values()]
