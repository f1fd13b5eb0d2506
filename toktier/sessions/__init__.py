"""The durable store of sessions, whose contract is docs/session-store.md. It encodes nothing."""
