"""Make the detector of `--model package.module:function`."""

import contextlib
import importlib
import inspect
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import click
from torch import nn

from lensbox.common.errors import ArtifactError, InputError, LensboxError
from lensbox.export.weights import load_weights, pickled_objects
from lensbox.model import Detector
from lensbox.model.user_errors import is_users, kind_of, type_and_line

_logger = logging.getLogger(__name__)


def load_model(
    name: str, weights: Path | None, options: Mapping[str, Any], weights_key: str | None = None
) -> Detector:
    """Call the function or class `package.module:function` with the options as keyword arguments.

    Modules are searched in the working directory first. A function with a parameter `weights` gets the path.
    Otherwise `load_weights` loads the file into the returned module. weights_key: the place of the weights in
    the file. Raise click.UsageError for a bad name or bad options, ArtifactError if the function fails or
    returns no module, and InputError for weights that cannot be read or do not fit.
    """
    function = _find(name)
    keywords = dict(options)
    try:
        signature = inspect.signature(function)
    except ValueError as error:  # some functions written in C
        raise click.UsageError(
            f"--model must name a function or class with known arguments, got {name!r}: {error}"
        ) from error
    takes_weights = "weights" in signature.parameters
    if takes_weights and weights is not None:
        keywords["weights"] = weights
        if weights_key is not None:
            rule = "--weights-key must come with a function that leaves the weights to the export"
            raise click.UsageError(f"{rule}; {name}{signature} reads them")
    try:
        signature.bind(**keywords)
    except TypeError as error:
        given = ", ".join(keywords) or "none"
        raise click.UsageError(
            f"--option must give what {name}{signature} takes, got {given}: {error}"
        ) from error
    try:
        module = function(**keywords)
    except Exception as error:  # whatever the user's code raises
        if takes_weights and weights is not None and (said := pickled_objects(error, weights)):
            raise InputError(said) from error
        raise ArtifactError(f"{name} raised {type_and_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise ArtifactError(f"{name} must return a torch.nn.Module, got {kind_of(module)}")
    if weights is not None and not takes_weights:
        load_weights(module, weights, weights_key, f"{name}({', '.join(signature.parameters)})")
    elif weights is None and next(module.parameters(), None) is not None:
        _logger.info("without --weights, the file holds the weights that %s gave its module", name)
    return cast(Detector, module)  # the export checks the protocol


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of texts `key=value`: JSON values, else text.

    Raise click.UsageError for other forms and for duplicate keys.
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise click.UsageError(f"--option must be key=value with an identifier as key, got {text!r}")
        if key in options:
            raise click.UsageError(f"--option must give each key once, got {key} twice")
        try:
            options[key] = json.loads(value, parse_constant=str)
        except (ValueError, RecursionError):
            options[key] = value
    return options


@contextlib.contextmanager
def naming_its_errors(detector: Detector) -> Iterator[None]:
    """Turn errors of the detector's own code into ArtifactError with the line; let other errors pass."""
    try:
        yield
    except LensboxError:
        raise
    except Exception as error:  # whatever the user's code raises
        kinds = {base for part in cast(nn.Module, detector).modules() for base in type(part).__mro__}
        members = [member for kind in kinds for member in vars(kind).values()]
        files = {member.__code__.co_filename for member in members if isinstance(member, FunctionType)}
        frames = traceback.extract_tb(error.__traceback__)
        if not any(frame.filename in files and is_users(frame.filename) for frame in frames):
            raise
        raise ArtifactError(f"the detector raised {type_and_line(error)}") from error


def _find(name: str) -> Callable[..., Any]:
    module_name, _, function_name = name.partition(":")
    rule = "--model must be package.module:function, with a function or class that makes the detector"
    if not all(map(str.isidentifier, module_name.split("."))):
        raise click.UsageError(f"{rule}, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module's code runs
        stem = module_name.removesuffix(".py")
        hint = f"; a module is named without .py: {stem}" if stem != module_name else ""
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise click.UsageError(
                f"--model must name a module that can be imported, got {name!r}: {error} (looked in {here} "
                f"and where Python looks){hint}"
            ) from error
        raise ArtifactError(f"importing {module_name} raised {type_and_line(error)}") from error
    function = getattr(module, function_name, None)
    if callable(function) and not isinstance(function, nn.Module):
        return function  # type: ignore[no-any-return]
    kind = f", a {kind_of(function)} object" if function is not None else ""
    classes = [
        f"{module_name}:{key}"
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module_name
    ]
    such_as = f", such as {classes[0]}" if classes else ""
    raise click.UsageError(f"{rule}{such_as}, got {name!r}{kind}")
