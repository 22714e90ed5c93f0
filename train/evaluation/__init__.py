"""Score a detector on labelled photographs."""
