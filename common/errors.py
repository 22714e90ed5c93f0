"""Errors that the user can fix, and the exit codes that all commands share."""

import contextlib
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """The exit code of a command; the C++ runner uses the same numbers (`docs/troubleshooting.md`).

    GOOD: success. DEFECT: an unexpected error, with its traceback. USAGE: wrong options, or a missing device.
    UNUSABLE: an artifact, an op library or a package cannot be used. BAD_INPUT: bad weights, images, boxes or
    data. BROKE_DOWN: a training run cannot continue. INTERRUPTED: 128 + SIGINT, the shells' convention.
    """

    GOOD = 0
    DEFECT = 1
    USAGE = 2
    UNUSABLE = 3
    BAD_INPUT = 4
    BROKE_DOWN = 5
    INTERRUPTED = 130


class LensboxError(Exception):
    """The base class. Messages are for the user: they name the argument, the rule and the value received."""

    exit_code = ExitCode.DEFECT


def system_reason(error: OSError) -> str:
    """Return the reason of a failed read or write, without errno and path."""
    return error.strerror or str(error) or type(error).__name__


@contextlib.contextmanager
def reading(name: object, kind: type[LensboxError]) -> Iterator[None]:
    """Raise an error of this kind for each OSError in the context: NAME cannot be read, and the reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{name} cannot be read: {system_reason(error)}") from error


def no_such_artifact(path: Path) -> str:
    """Return the message for an artifact that does not exist."""
    return (
        f"there is no file {path.name} in {path.parent.resolve()}; give the path of an artifact, "
        "or write one with `lensbox export`"
    )


class DeviceError(LensboxError, RuntimeError):
    """The requested device is missing or unsuitable."""

    exit_code = ExitCode.USAGE


class OutputError(LensboxError, ValueError):
    """The output of a command cannot be written to the path in its options."""

    exit_code = ExitCode.USAGE


class ArtifactError(LensboxError, RuntimeError):
    """The artifact cannot be written, loaded or verified."""

    exit_code = ExitCode.UNUSABLE


class InputError(LensboxError, ValueError):
    """Weights, an image, boxes or a data set are bad."""

    exit_code = ExitCode.BAD_INPUT
