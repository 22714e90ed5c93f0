"""Benchmarks of the ops against what a user would pick instead: `lensbox bench ops`."""
