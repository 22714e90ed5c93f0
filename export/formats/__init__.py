"""The formats: each has `build`, which makes a model of a plan, and the model has `pack`."""
