"""The project's own benchmarks, in the repository alone: `lensbox bench ops` and its siblings."""
