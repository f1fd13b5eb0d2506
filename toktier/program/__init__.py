"""tokenizer.json → Program: the compiler. Pure Python; the BPE tables are built in `_native`."""
