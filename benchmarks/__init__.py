"""Benchmarks: `python -m benchmarks.<name> --json` prints one row per figure."""
