"""Random texts made of what tokenizers get wrong, deterministic by seed.

Pieces come from pools (blanks and line ends of every kind, digits of several scripts, contractions, marks, jamo,
characters whose normal forms moved, unassigned and private ones), from the tokenizer's own added tokens, whole, cut and
with changed case, from its vocabulary, and from ordinary passages of prose, code and records that are damaged a little.
Not here: texts that reach every entry of a program's tables (the coverage suites do that).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

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


PASSAGES = (
    "There were 14 boats on the beach, and by 7:30 a.m. only three of them (the \"Ida\", the \"Möwe\" and one without "
    "a name) hadn't left. \"We'll go when it's over,\" she'd said; nobody's plan was better.\n\n",
    "def read(path: str, *, limit: int = 1_000) -> list[str]:\n    with open(path, encoding=\"utf-8\") as lines:\n"
    "        return [line.rstrip(\"\\n\") for _, line in zip(range(limit), lines)]\n\n\n",
    "for (size_t i = 0; i != n; ++i) {\r\n\tif (a[i] >= 0x7F) { total += a[i] * 1.5e-3; }  // bytes\r\n}\r\n",
    '{"id": 90210, "tags": ["a-b", "été", "数据"], "ok": true, "price": 1299.99, "note": null}\n',
    "| Größe | 12,5 % |\n|---|---|\n* https://example.org/a/b?c=1&d=%20#e\n> Zitat – „so“ …\n",
    "昨日は雨が降りました。今日は晴れです。第3回の会議は10時からです。我们在2024年开始了这个项目。"
    " 한국어 문장도 있습니다. ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Η γρήγορη αλεπού. مرحبا بالعالم ١٢٣ שלום עולם ",
    "हिन्दी में लिखा हुआ एक वाक्य। ภาษาไทยไม่มีช่องว่าง Tiếng Việt có nhiều dấu. 👩🏽‍💻 shipped it 🎉🎉 ",
)  # fmt: skip
PASSAGE_SPAN = 160  # code points of a passage that one part takes at most


def hostile_texts(added: Sequence[str], count: int, seed: str, vocabulary: Sequence[str] = ()) -> Iterator[str]:
    """`count` texts, of up to some forty parts; one in a hundred is long. `added`: contents of added tokens;
    `vocabulary`: strings of the model that are text. No text holds a lone surrogate."""
    rng = random.Random(seed)
    for _ in range(count):
        length = rng.choice((1, 2, 3, 4, 6, 10, 16, 40)) if rng.random() < 0.99 else 400
        focus = rng.sample(POOLS, rng.randint(1, 4))
        yield "".join(_part(rng, focus, added, vocabulary) for _ in range(length))


def _part(rng: random.Random, focus: list[str], added: Sequence[str], vocabulary: Sequence[str]) -> str:
    choice = rng.random()
    if choice < 0.5:
        character = rng.choice(rng.choice(focus))
        return character * (rng.randint(2, 5) if rng.random() < 0.15 else 1)
    if choice < 0.67:
        return rng.choice(WORDS)
    if choice < 0.8 and added:
        token = rng.choice(added)
        form = rng.random()
        if form < 0.6:
            return token
        cut = rng.randint(0, len(token))
        return (token[:cut], token[cut:], token.upper(), token + token[:cut])[rng.randint(0, 3)]
    if choice < 0.9 and vocabulary:
        return rng.choice(vocabulary)
    if choice < 0.95:
        return damaged_passage(rng)
    code_point = rng.choice((rng.randrange(0x300), rng.randrange(0x3000), rng.randrange(0x110000)))
    return chr(code_point) if not 0xD800 <= code_point <= 0xDFFF else "\ufffd"


def damaged_passage(rng: random.Random) -> str:
    """A span of a passage after up to three edits: a stretch dropped, doubled or in another case, a character of a pool
    put in, other line ends."""
    passage = rng.choice(PASSAGES)
    begin = rng.randrange(len(passage))
    text = passage[begin : begin + rng.randint(1, PASSAGE_SPAN)]
    for _ in range(rng.randint(0, 3)):
        first = rng.randint(0, len(text))
        last = min(len(text), first + rng.randint(0, 8))
        stretch = text[first:last]
        put = (
            lambda stretch: "",
            lambda stretch: stretch * 2,
            str.swapcase,
            lambda stretch: stretch + rng.choice(rng.choice(POOLS)),
            lambda stretch: stretch.replace("\n", "\r\n"),
        )[rng.randrange(5)](stretch)
        text = text[:first] + put + text[last:]
    return text
