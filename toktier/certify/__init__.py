"""Certification: what a backend was compared with, how much of a tokenizer that covered, and the evidence of it."""
