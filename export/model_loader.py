"""Make the detector of `--model package.module:function`."""

import contextlib
import importlib
import inspect
import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from lensbox.model.protocol_check import described, is_users, kind_of
from lensbox.model.weights_file import misfit, opening
from lensbox.runtime.file.archive import inflated_sizes

_logger = logging.getLogger(__name__)


def load_model(name: str, weights: Path | None, options: Mapping[str, Any]) -> Detector:
    """Call the function or class `package.module:function` with the options as keyword arguments.

    Modules are searched in the working directory first. A function with a parameter `weights` gets the path.
    Otherwise the weights (safetensors, or a state dict or checkpoint of torch.save) are loaded into the
    returned module, and must fit. Raises click.UsageError for a bad name or bad options, ArtifactError if the
    function fails or returns no module, and InputError for weights that cannot be read or do not fit.
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
        raise ArtifactError(f"{name} raised {described(error)}") from error
    if not isinstance(module, nn.Module):
        raise ArtifactError(f"{name} must return a torch.nn.Module, got {kind_of(module)}")
    if weights is not None and not takes_weights:
        _load_weights(module, weights)
    elif weights is None and next(module.parameters(), None) is not None:
        _logger.info("without --weights, the file holds the weights that %s gave its module", name)
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
        try:
            options[key] = json.loads(value, parse_constant=str)
        except ValueError:
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
        raise ArtifactError(f"the detector raised {described(error)}") from error


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
        raise ArtifactError(f"importing {module_name} raised {described(error)}") from error
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


# Parts that wrappers insert into the names of tensors: DataParallel, DDP and AveragedModel; torch.compile.
_WRAPPERS = ("module", "_orig_mod")
_OF_AVERAGED_MODEL = "n_averaged"


def _load_weights(module: nn.Module, path: Path) -> None:
    """Load the state dict of a file into a module.

    Trainers save state dicts below keys such as `state_dict`, `model` or `ema`, and put a prefix such as
    `model.` before the names. Exactly one state dict of the file must fit. Raise InputError.
    """
    if not path.is_file():
        raise InputError(f"--weights must be a file, got {path}")
    expected = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    states = dict(_states(_read_weights(path), expected))
    if not states:
        raise InputError(f"{path} must hold a state dict, names and tensors")
    fitting = [place for place, state in states.items() if misfit(state, expected, "the detector") is None]
    if len(fitting) > 1:
        places = " and ".join(place or "whole" for place in fitting)
        raise InputError(f"{path} must hold the detector's weights once, got them {places}: save only one")
    place = (fitting or [max(states, key=lambda place: len(states[place].keys() & expected.keys()))])[0]
    state = states[place]
    try:
        module.load_state_dict(state)
    except RuntimeError as error:  # torch writes one line for each tensor
        reason = misfit(state, expected, "the detector") or " ".join(str(error).split())
        raise InputError(f"{path}{place and f', {place}'}: {reason}{_way_out(state, expected)}") from error
    if place:
        _logger.info("the weights are %s", place)


def _states(checkpoint: Any, expected: Collection[str]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield places and state dicts of a checkpoint: below each key, behind each prefix of the first name."""
    names = {_unwrapped(name): name for name in expected}
    items = checkpoint.items() if isinstance(checkpoint, Mapping) else ()
    for key, values in (("", checkpoint), *items):
        tensors = {
            _unwrapped(str(name)): value
            for name, value in (values.items() if isinstance(values, Mapping) else ())
            if isinstance(value, Tensor)
        }
        if _OF_AVERAGED_MODEL not in names:
            tensors.pop(_OF_AVERAGED_MODEL, None)
        prefixes = {
            name[: -len(known)] for name in tensors for known in names if f".{name}".endswith(f".{known}")
        }
        for prefix in sorted({"", *prefixes}) if tensors else ():
            inner = {
                name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)
            }
            places = (f"below {key!r}" if key else "", f"behind the prefix {prefix!r}" if prefix else "")
            yield " ".join(filter(None, places)), {names.get(name, name): inner[name] for name in inner}


def _unwrapped(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _way_out(state: Collection[str], expected: Collection[str]) -> str:
    """Return a hint if the state dict is of a part of the detector."""
    for name in state:
        whole = next((one for one in expected if one.endswith(f".{name}")), None)
        if name not in expected and whole is not None:
            return (
                f". The detector has no tensor {name} but {whole}: save the whole detector's state dict, "
                "or load this one in the function of --model"
            )
    return ""


def _read_weights(path: Path) -> Any:
    try:
        with opening(path, f"--weights {path}"):
            return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as not_safetensors:
        _refuse_inflated(path)
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds of errors for other files
            if kind := re.search(r"Unsupported global: GLOBAL (\S+)", str(error)):
                raise InputError(
                    f"{path} must hold only tensors and plain values, got an object of {kind[1]}: save the "
                    "detector's state_dict()"
                ) from error
            raise InputError(
                f"{path} is neither a safetensors file ({not_safetensors}) nor a state dict of torch.save"
            ) from error


def _refuse_inflated(path: Path) -> None:
    """Raise InputError for an archive that takes more memory than the file has bytes; torch.save stores."""
    try:
        with path.open("rb") as file:
            size = sum(inflated_sizes(file).values())
    except ValueError:  # not an archive: torch.load may read an older format, or says why it cannot
        return
    if size > (most := path.stat().st_size):
        raise InputError(
            f"{path} must hold its records uncompressed, as torch.save writes them: they have {size} bytes, "
            f"the file has {most}"
        )
