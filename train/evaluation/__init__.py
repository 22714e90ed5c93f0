"""How good a detector is on labelled photographs, in figures and pictures."""
