"""The tests; `tests.helpers` is imported by them and by the benchmarks."""
