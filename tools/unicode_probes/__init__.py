"""Probes of the installed reference, one module for each family of character tables.

Every set and map is read off the behaviour of `tokenizers` itself, over all 1,112,064 scalar values; no Unicode database
takes part, except to name candidates and to label combining classes, and both are checked by probing. Imports only the
standard library and `tokenizers`, so that the tables can be checked under any version of it.
"""
