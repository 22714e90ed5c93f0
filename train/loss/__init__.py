"""Assign cells to boxes; compute the loss against labels and against teachers."""
