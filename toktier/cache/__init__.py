"""Caches of token ids in front of a backend: the prefix cache (docs/prefix-cache.md) and what it asks besides."""
