"""Augmented views of photographs, drawn on the training device."""
