"""The HTTP service of models: `lensbox serve`, or a replica of Ray.

Nothing is imported here, so that `lensbox serve --help` does not wait for torch.
"""
