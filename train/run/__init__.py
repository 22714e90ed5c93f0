"""A training run: the step, what makes it fast, and what the run writes."""
