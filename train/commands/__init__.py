"""The commands `lensbox train`, `lensbox evaluate` and `lensbox stress`."""
