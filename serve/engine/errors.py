"""Exceptions of engines."""


class OverloadError(Exception):
    """There is no room for another request."""


class NotReadyError(Exception):
    """The model is still loading, failed to load, or is out of use."""


class DeadlineError(Exception):
    """The deadline passed before the job was done."""
