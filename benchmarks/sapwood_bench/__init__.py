"""The parts of the benchmark runner; `benchmarks/run.py` is the entry point."""
