"""Random texts made of what tokenizers get wrong, and their comparison with the reference: ids and offsets.

Pieces come from pools (blanks and line ends of every kind, digits of several scripts, contractions, marks, jamo,
characters whose normal forms moved, unassigned and private ones) and from the tokenizer's own added tokens, whole, cut
and with changed case. Deterministic by seed. Not here: strings that reach every entry of a program's tables
(tests/program and tests/native do that).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import tokenizers

from tests.conformance.adapter import assert_only_native, encode_natively
from tests.conformance.corpus import Report
from toktier import Tokenizer

POOLS: tuple[str, ...] = (
    "abcdefghijklmnopqrstuvwxyzABCXYZ",
    "                 \t\u00a0\u1680\u2003\u2028\u202f\u3000\u200b\ufeff",
    "\n\n\n\r\n\r\x0b\x0c\x85\u2028\u2029",
    "0123456789٠१๒Ⅷ½²₃〇𝟘",
    "'’ʼ\"`.,;:!?-–—()[]{}<>|/\\@#$%^&*_+=~¡¿«»、。「」・…‘“＿",
    "äöüßéèñçøåæœſıİŁдЖяабвΩςσΣאבגעربيहिन्दीไทยกำ",
    "中文字体漢字日本語カナかなー々〆㐀𠀀",
    "\u1100\u1161\u11a8\uac00\uac01\ud7a3ㄱㅏ",
    "\u0300\u0301\u0308\u0323\u0327\u0345\u0338\u05b0\u064b\u093c\u0e38\u0e48\u3099\u309a\u20d0\ufe0f\u200d\u034f",
    "👍👩🏽‍💻👨‍👩‍👧🇩🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿✨☃",
    "\u0344\u0958\u09dc\u0f43\u2126\u212a\u212b\ufb1d\ufb01\ufdfa\u1e9b\u0374\u037e\u2000\U0002f800\uf900\ufa0e\u3000\u3131",
    "\U0001f984\U000e0001\u0378\ue000\U000f0000\U0010ffff\ufffd\ufffe\x00\x01\x1b\x7f\u0080\U0001e900\U00016e40\ua7cb",
)
WORDS = (
    "'s", "'S", "'ſ", "'t", "'re", "'VE", "'m", "'ll", "'d", "don't", "I'M", "'lL", "http://", "don’t", "x'", "''s",
    "the", " the", "The ", " of", "ing", "  ", "   ", "\n\n", " \n", "\n ", "\r\n\r\n", "\t\t", "\n/", "/\n", ")\n",
    "123", "1234", "12345678", " 1", "▁", "▁▁", " ▁", "<0x0A>", "<0xE4>", "<0xFF>", "Ġ", "Ċ", "<|", "|>", "</s", "<s>",
    "[INST]", "e\u0301", "\u0041\u030a", "a\u0323\u0307", "a\u0307\u0323", "\u1100\u1161", "\u212b\u0323",
    "q\u0307\u0323", "がか\u3099", "def f(x):\n    return x\n", '{"a": [1, 2]}', "ß" * 4, "😀" * 3, "。" * 3, "-" * 9,
    "=" * 17, "a" * 33,
)  # fmt: skip


def hostile_texts(reference: tokenizers.Tokenizer, count: int, seed: str) -> Iterator[str]:
    """`count` texts, of up to some forty parts; one in a hundred is long."""
    rng = random.Random(seed)
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    for _ in range(count):
        length = rng.choice((1, 2, 3, 4, 6, 10, 16, 40)) if rng.random() < 0.99 else 400
        focus = rng.sample(POOLS, rng.randint(1, 4))
        yield "".join(_part(rng, focus, added) for _ in range(length))


def _part(rng: random.Random, focus: list[str], added: list[str]) -> str:
    choice = rng.random()
    if choice < 0.55:
        character = rng.choice(rng.choice(focus))
        return character * (rng.randint(2, 5) if rng.random() < 0.15 else 1)
    if choice < 0.75:
        return rng.choice(WORDS)
    if choice < 0.9 and added:
        token = rng.choice(added)
        form = rng.random()
        if form < 0.6:
            return token
        cut = rng.randint(0, len(token))
        return (token[:cut], token[cut:], token.upper(), token + token[:cut])[rng.randint(0, 3)]
    code_point = rng.choice((rng.randrange(0x300), rng.randrange(0x3000), rng.randrange(0x110000)))
    return chr(code_point) if not 0xD800 <= code_point <= 0xDFFF else "\ufffd"


def compare_hostile(
    tokenizer: Tokenizer, reference: tokenizers.Tokenizer, plain: tokenizers.Tokenizer, count: int, seed: str
) -> Report:
    """Ids and offsets with and without special tokens, and `plain` against a reference that was set so."""
    report = Report()
    for text in hostile_texts(reference, count, seed):
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
        ordinary, asked = plain.encode(text, add_special_tokens=False), tokenizer.encode(text, plain=True)
        if (asked.ids, asked.offsets) != (ordinary.ids, ordinary.offsets):
            report.differ("plain", name, asked.ids, ordinary.ids)
        if tokenizer.count(text, plain=True) != len(ordinary.ids):
            report.differ("count of plain", name, tokenizer.count(text, plain=True), len(ordinary.ids))
        report.documents += 1
        report.bytes += len(text.encode())
        report.code_points += len(text)
    assert_only_native(tokenizer)
    return report


def plain_reference(path: str) -> tokenizers.Tokenizer:
    """A reference for which special added tokens are ordinary text."""
    reference = tokenizers.Tokenizer.from_file(path)
    reference.encode_special_tokens = True
    return reference
