"""Probes of the installed reference, one module for each family of character tables.

Every set and map is read off the behaviour of `tokenizers` itself, over all 1,112,064 scalar values. No Unicode
database takes part, except to number the combining classes, whose order is probed. Imports only the standard library
and `tokenizers`, so that the tables can be checked under any version of it.
"""
