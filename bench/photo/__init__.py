"""`lensbox bench photo`: from a photograph to boxes, step by step and as a whole, beside its peers."""
