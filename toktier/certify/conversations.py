"""Chat messages as one text, with the added tokens that the tokenizer at hand has.

A layout is chosen by the tokens that it needs; no tokenizer is named. Where none fits, each message stands behind the
next of the added tokens in turn, so that every one of them meets real text. Not here: reading messages (`corpora`).
"""

from __future__ import annotations

from collections.abc import Sequence

# The tokens that a layout needs, and the layout of one message.
LAYOUTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|im_start|>", "<|im_end|>"), "<|im_start|>{role}\n{content}<|im_end|>\n"),
    (
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>",
    ),
    (("<|start|>", "<|message|>", "<|end|>"), "<|start|>{role}<|message|>{content}<|end|>"),
    (("<start_of_turn>", "<end_of_turn>"), "<start_of_turn>{role}\n{content}<end_of_turn>\n"),
    (("<｜User｜>", "<｜Assistant｜>"), "<｜User｜>{role}: {content}<｜Assistant｜>"),
    (("<s>", "</s>"), "<s>[INST] {role}\n{content} [/INST]</s>"),
)

Messages = tuple[tuple[str, str], ...]  # (role, content)


def render(messages: Messages, added: Sequence[str]) -> str:
    """One text of all messages; `added`: contents of the tokenizer's added tokens."""
    known = frozenset(added)
    layout = next((text for needed, text in LAYOUTS if known.issuperset(needed)), None)
    if layout is not None:
        return "".join(layout.replace("{role}", role, 1).replace("{content}", content, 1) for role, content in messages)
    if not added:
        return "\n".join(content for _, content in messages)
    parts: list[str] = []
    for turn, (role, content) in enumerate(messages):
        parts += [added[turn % len(added)], role, "\n", content]
    return "".join(parts)
