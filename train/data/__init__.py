"""Labelled photographs, from files to the tensors that views are drawn from."""
