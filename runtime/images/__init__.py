"""Image files: reading, decoding and turning them upright, by the rule that all runtimes share."""
