"""One small class for each engine."""
