"""Published vocabularies of other formats (tiktoken ranks, tekken) as the tokenizer.json of the same meaning."""
