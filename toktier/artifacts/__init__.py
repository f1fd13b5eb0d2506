"""Pinned tokenizer files: pins, sources, the verified cache."""
