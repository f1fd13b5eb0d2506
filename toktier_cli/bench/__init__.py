"""What `toktier bench` and the runner in benchmarks/ share: timing, and one adapter for each engine."""
