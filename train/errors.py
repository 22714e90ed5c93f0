"""Errors that only training raises. `lensbox.common.errors` has the errors that commands share."""

from lensbox.common.errors import ExitCode, LensboxError


class ConfigError(LensboxError, ValueError):
    """An option, or a key or value of the configuration, that training does not accept."""

    exit_code = ExitCode.USAGE


class TrainingError(LensboxError, RuntimeError):
    """A run that cannot go on, such as one whose loss is no longer a number."""

    exit_code = ExitCode.BROKE_DOWN
