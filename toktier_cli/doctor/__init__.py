"""How a report is told to people."""
