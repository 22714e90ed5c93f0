"""Why an engine does not do a job."""


class OverloadError(Exception):
    """There is no room for another request."""


class NotReadyError(Exception):
    """The model is not loaded yet, could not be loaded, or has been given up."""


class DeadlineError(Exception):
    """The time for an answer was over before the job was done."""
