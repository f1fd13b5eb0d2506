"""A model for llama-server, made of a tokenizer.json: its vocabulary, two layers of random weights, a chat template.

The same file gives the same model. Its output depends on the whole context, so that a wrong prefix is seen in it. Of
random logits the largest would often be half a character or a control token, which llama-server refuses to stream: each
token's embedding is 4 in dimension 0, to which no layer adds, and the output row of every token that is not plain ASCII
is -60 there. Run as a program: it needs `gguf`, which is not in `.venv`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

EMBEDDING, HEADS, LAYERS, FEED_FORWARD, CONTEXT = 64, 4, 2, 128, 32_768
SPREAD = 1.0  # of weights, by the root of their inputs: enough that each token of a context counts
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write(tokenizer_json: Path, out: Path) -> None:
    import gguf  # type: ignore[import-not-found,unused-ignore]

    document = json.loads(tokenizer_json.read_text(encoding="utf-8"))
    added = {token["content"]: token["id"] for token in document["added_tokens"]}
    vocabulary = {**document["model"]["vocab"], **added}
    size = (max(vocabulary.values()) + 32) // 32 * 32  # padded, as published models are
    names = [f"[PAD{index}]" for index in range(size)]
    kinds = [int(gguf.TokenType.UNUSED)] * size
    for name, index in vocabulary.items():
        names[index] = name
        kinds[index] = int(gguf.TokenType.CONTROL if name in added else gguf.TokenType.NORMAL)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in document["model"]["merges"]]

    writer = gguf.GGUFWriter(str(out), "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(size)
    writer.add_file_type(0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_add_bos_token(False)
    if "<|im_end|>" in vocabulary:
        writer.add_eos_token_id(vocabulary["<|im_end|>"])
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in weights(names, kinds, int(gguf.TokenType.NORMAL)):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def weights(names: list[str], kinds: list[int], normal: int) -> list[tuple[str, Any]]:
    random = np.random.default_rng(1)
    embedding = random.normal(0, 1, (len(names), EMBEDDING)).astype(np.float32)
    embedding[:, 0] = 4
    output = random.normal(0, 1, (len(names), EMBEDDING)).astype(np.float32)
    output[:, 0] = 0
    for index, name in enumerate(names):
        # "Ġ" and "Ċ" are how byte-level vocabularies write a blank and a line feed.
        if kinds[index] != normal or not all(character.isascii() or character in "ĠĊ" for character in name):
            output[index, 0] = -60
    tensors = [
        ("token_embd.weight", embedding),
        ("output.weight", output),
        ("output_norm.weight", np.ones(EMBEDDING, np.float32)),
    ]
    shapes = {
        "attn_q": (EMBEDDING, EMBEDDING),
        "attn_k": (EMBEDDING, EMBEDDING),
        "attn_v": (EMBEDDING, EMBEDDING),
        "attn_output": (EMBEDDING, EMBEDDING),
        "ffn_gate": (FEED_FORWARD, EMBEDDING),
        "ffn_up": (FEED_FORWARD, EMBEDDING),
        "ffn_down": (EMBEDDING, FEED_FORWARD),
    }
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            tensor = random.normal(0, SPREAD / np.sqrt(shape[1]), shape).astype(np.float32)
            if name in ("attn_output", "ffn_down"):
                tensor[0, :] = 0  # dimension 0 stays what the embedding says
            tensors.append((f"blk.{layer}.{name}.weight", tensor))
        for name in ("attn_norm", "ffn_norm"):
            tensors.append((f"blk.{layer}.{name}.weight", np.ones(EMBEDDING, np.float32)))
    return tensors


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
