"""The router of `toktier serve`: a prefix-affine proxy in front of llama-servers (docs/router.md).

Nothing is loaded by importing this; the verb imports what it needs. With the extra `serve`.
"""
