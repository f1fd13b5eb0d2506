"""One small class for each engine, one protocol."""
