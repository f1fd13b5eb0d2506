"""One module per verb or pair of verbs; each imports what it needs when it runs."""
