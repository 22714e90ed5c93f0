"""From a detector in Python to an artifact that any runtime can load."""
