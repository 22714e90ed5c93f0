"""Score a detector on labelled photographs, in figures and pictures."""
