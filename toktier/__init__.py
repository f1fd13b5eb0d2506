"""toktier: the same token IDs as Hugging Face `tokenizers`, from a compiled tokenizer.json."""
