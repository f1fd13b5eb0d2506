"""Sessions: growing transcripts. Here so far: the durable store (docs/session-store.md), which encodes nothing."""
