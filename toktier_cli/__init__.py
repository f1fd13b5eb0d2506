"""The `toktier` command: verbs, output, exit codes. A thin face of the package."""
