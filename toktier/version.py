"""The version of this package, as a constant: reading the installed metadata would cost every start 40 ms."""

VERSION = "0.1.0"
