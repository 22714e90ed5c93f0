"""Make the detector of `--model package.module:function`."""

import contextlib
import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import click
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError, InputError, LensboxError
from lensbox.model import Detector
from lensbox.model.protocol_check import is_users, kind_of, location
from lensbox.model.weights_file import misfit, opening


def load_model(name: str, weights: Path | None, options: Mapping[str, Any]) -> Detector:
    """Call the function or class `package.module:function` with the options as keyword arguments.

    Modules are searched in the working directory first. A function with a parameter `weights` gets the path.
    Otherwise the weights (safetensors, or a state dict of torch.save) are loaded into the returned module,
    and must fit. Raises click.UsageError for a bad name or bad options, ArtifactError if the function fails
    or returns no module, and InputError for weights that cannot be read or do not fit.
    """
    function = _find(name)
    keywords = dict(options)
    signature = _signature(function, name)
    takes_weights = "weights" in signature.parameters
    if takes_weights and weights is not None:
        keywords["weights"] = weights
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
        raise ArtifactError(f"{name} raised {_described(error)}") from error
    if not isinstance(module, nn.Module):
        raise ArtifactError(f"{name} must return a torch.nn.Module, got {kind_of(module)}")
    if weights is not None and not takes_weights:
        _load_weights(module, weights)
    detector: Any = module  # the export checks the protocol
    return detector  # type: ignore[no-any-return]


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of texts `key=value`: JSON values, else text.

    Raises click.UsageError for other forms and for duplicate keys.
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise click.UsageError(f"--option must be key=value with an identifier as key, got {text!r}")
        if key in options:
            raise click.UsageError(f"--option must give each key once, got {key} twice")
        options[key] = _value(value)
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
        raise ArtifactError(f"the detector raised {_described(error)}") from error


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def _find(name: str) -> Callable[..., Any]:
    module_name, colon, function_name = name.partition(":")
    if (
        not colon
        or not function_name.isidentifier()
        or not all(map(str.isidentifier, module_name.split(".")))
    ):
        raise click.UsageError(f"--model must be package.module:function, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module's code runs
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise click.UsageError(
                f"--model must name a module that can be imported, got {name!r}: {error} (looked in {here} "
                f"and where Python looks){_hint(module_name)}"
            ) from error
        raise ArtifactError(f"importing {module_name} raised {_described(error)}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise click.UsageError(
            f"--model must name a function or class of {module_name}, got {function_name!r}"
        )
    return function  # type: ignore[no-any-return]


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:  # some functions written in C
        raise click.UsageError(
            f"--model must name a function or class with known arguments, got {name!r}: {error}"
        ) from error


def _hint(module_name: str) -> str:
    stem, dot, last = module_name.rpartition(".")
    return f"; a module is named without .py: {stem}" if dot and last == "py" else ""


def _described(error: Exception) -> str:
    where = location(error)
    return f"{type(error).__name__}: {error}" + (f" ({where})" if where else "")


def _load_weights(module: nn.Module, path: Path) -> None:
    if not path.is_file():
        raise InputError(f"--weights must be a file, got {path}")
    tensors = _read_weights(path)
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:  # torch writes one line for each tensor
        reason = misfit(tensors, module.state_dict(), "the detector") or " ".join(str(error).split())
        raise InputError(f"{path}: {reason}") from error


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        with opening(path, f"--weights {path}"):
            return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as not_safetensors:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds of errors for other files
            raise InputError(
                f"{path} is neither a safetensors file ({not_safetensors}) nor a state dict of torch.save"
            ) from error
    rule = f"{path} must hold a state dict, names and tensors"
    if not isinstance(state, dict):
        raise InputError(f"{rule}, got {kind_of(state)}")
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise InputError(
                f"{rule}, got {kind_of(value)} as {key!r} (save only the state dict of a checkpoint)"
            )
    return state
