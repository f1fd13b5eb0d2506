"""What is known of a tokenizer on a backend, from evidence that came with the installation or was made on this host."""
