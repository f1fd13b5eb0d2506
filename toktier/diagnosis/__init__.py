"""What runs on this host and why not faster: checks as data, each with a deadline, and the report made of them.

Nothing here writes, connects, takes a lock or creates a GPU context (docs/doctor.md).
"""
