"""probe → plan (pure) → execute: which engine serves, and why."""
