"""Degrade faces until a detector misses them."""
