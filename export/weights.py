"""Load the weights of a file of any trainer into a detector: exactly one set of weights must fit."""

import argparse
import logging
import pickle
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import safetensors
import safetensors.torch
import torch
from torch import nn

from lensbox.common.errors import InputError
from lensbox.export.checkpoint import Target, Weights, targets
from lensbox.export.checkpoint_search import find_weights
from lensbox.model.weights_file import misfit, opening
from lensbox.runtime.file.archive import inflated_sizes

_logger = logging.getLogger(__name__)

_MOST_LISTED = 20


class _Omitted:
    """Stands for an object of a class that torch does not read: no code of the class runs."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


# What is made of objects of other classes in checkpoints, by name.
_PLAIN: dict[str, Any] = {
    "argparse.Namespace": argparse.Namespace,
    "collections.defaultdict": lambda *_: {},
    "collections.deque": lambda *_: [],
}


def load_weights(module: nn.Module, path: Path, key: str | None = None, maker: str = "") -> None:
    """Load the weights of a safetensors file, a state dict or a checkpoint of torch.save into a module.

    The weights may lie at any depth, behind prefixes of the names. They may also fit one member of the
    module, if it holds all parameters. key: the place of the weights, as this function's messages give it.
    maker: the function that made the module, with its parameters, for messages. Raise InputError if the file
    cannot be read, if no weights fit, or if several do and differ.
    """
    if not path.is_file():
        raise InputError(f"--weights must be a file, got {path}")
    wanted = targets(module)
    found = find_weights(_read(path), wanted)
    if not any(one.matched for one in found) and (classes := _classes_of(path)):
        raise InputError(_refusal(path, classes))
    if not found:
        raise InputError(f"{path} must hold a state dict, names and tensors")
    if not wanted[0].state:
        raise InputError(f"--weights must come with a detector that has weights: {maker or 'it'} has none")
    chosen = _chosen(found, path, key)
    if chosen is None:
        chosen = max(_at(found, path, key), key=lambda one: (len(one.matched), -len(one.place)))
        refused = _misfit(chosen, wanted[0], maker)
        if not chosen.named:
            raise InputError(f"{path} {refused}")
        if (names := chosen.target.torn(chosen.state)) is not None:
            raise InputError(f"{path}: {' and '.join(names)} are one tensor in the detector, and differ here")
        try:  # hooks of the module may rename tensors
            chosen.target.module.load_state_dict(chosen.state)
        except RuntimeError as error:
            raise InputError(f"{path}: {refused}") from error
    else:
        state = {**_buffers_for(chosen, found, path), **chosen.state}
        chosen.target.module.load_state_dict(state, strict=False)  # (one name of a shared tensor is enough)
    if chosen.place:
        _logger.info("the weights are %s of %s: %d tensors", chosen.text, path.name, len(chosen.state))
    if chosen.target is not wanted[0]:
        before = f"{chosen.target.path}."
        kept = [name for name in wanted[0].state if not name.startswith(before)]
        others = (
            f"; {', '.join(kept)} stay as {maker.partition('(')[0] or 'they were'} made them" if kept else ""
        )
        _logger.info("the weights are those of the detector's member %s%s", chosen.target.path, others)


def _at(found: Sequence[Weights], path: Path, key: str | None) -> Sequence[Weights]:
    """Return the weights at a place, or those below the place if none there fit."""
    if key is None:
        return found
    exact = [one for one in found if key in (one.text, one.exact)]
    fitting = [one for one in exact if one.fits or one.lacks_buffers_alone]
    below = [one for one in found if one.text.startswith(f"{key}.")]
    if not (exact or below):
        places = [one for one in found if one.matched] or found
        raise InputError(f"--weights-key must be a place of tensors in {path}, got {key!r}:{_listed(places)}")
    return fitting or [*exact, *below]


def _chosen(found: Sequence[Weights], path: Path, key: str | None) -> Weights | None:
    """Return the weights to load, None if none fit. Raise InputError for several that differ."""
    pool = _at(found, path, key)
    fitting = [one for one in pool if one.fits and (one.named or key is not None)]
    if not fitting and key is not None:
        fitting = [one for one in pool if one.lacks_buffers_alone and one.matched]
    if not fitting:
        return None
    first = fitting[0]
    alike = [one for one in pool if one is not first and one.rivals]
    if all(one.same_as(first) for one in alike):
        for one in alike:
            if one in fitting:
                _logger.info("%s and %s of %s hold the same values", first.text, one.text, path.name)
        return first
    rivals = [one for one in pool if one is first or one in alike]
    raise InputError(
        f"{path} holds several weights for the detector, such as an average beside the trained ones. "
        f"Give one:{_listed(rivals)}"
    )


def _listed(weights: Sequence[Weights]) -> str:
    """Return a line for each place, with the option that takes the weights there."""
    texts = [one.text for one in weights]
    lines = []
    for one in weights[:_MOST_LISTED]:
        text = one.text if texts.count(one.text) == 1 else one.exact
        parts = ""
        if not one.fits:
            parts = ", without buffers" if one.lacks_buffers_alone else f", {len(one.matched)} of which fit"
        lines.append(f"\n  --weights-key {shlex.quote(text)}: {len(one.state)} tensors{parts}")
    if len(weights) > _MOST_LISTED:
        lines.append(f"\n  and {len(weights) - _MOST_LISTED} more")
    return "".join(lines)


def _buffers_for(chosen: Weights, found: Sequence[Weights], path: Path) -> dict[str, Any]:
    """Return the buffers for an average of parameters alone, from the only complete weights of the file."""
    if not chosen.lacking:
        return {}
    complete = [one for one in found if one.fits and one.target is chosen.target]
    if len(complete) != 1:
        raise InputError(
            f"{path}, {chosen.text}: {misfit(chosen.state, chosen.target.state, 'the detector')}. Copy the "
            "average into the network where you trained it, and save the network's state_dict()"
        )
    _logger.info(
        "the %d buffers, such as %s, are from %s", len(chosen.lacking), chosen.lacking[0], complete[0].text
    )
    return {name: complete[0].state[name] for name in chosen.lacking if name in complete[0].state}


def _misfit(weights: Weights, whole: Target, maker: str) -> str:
    """Return a sentence about weights that do not fit, with a way out."""
    target = weights.target
    if not weights.named:
        return (
            f"must hold a state dict, names and tensors. The list at {weights.text} has no names: give "
            f"--weights-key {shlex.quote(weights.text)} if it is in the order of the detector's parameters()"
        )
    # Without names that count batches, which some libraries leave out and others do not.
    told = weights.matched.union(weights.others)
    given = {name: value for name, value in weights.state.items() if name in told}
    expected = {name: target.state[name] for name in target.state if name in given or name in weights.lacking}
    owner = f"the detector's member {target.path}" if target is not whole else "the detector"
    reason = misfit(given, expected, owner) or "the module's own hooks refuse them"
    place = f"{weights.text}: " if weights.place else ""
    for name in weights.others:
        inside = next((one for one in whole.state if one.endswith(f".{name}")), None)
        if name not in target.state and inside is not None:
            return (
                f"{place}{reason}. The detector has no tensor {name} but {inside}: save the whole detector's "
                "state dict, or load this one in the function of --model"
            )
    if not maker.endswith("()") and maker and not weights.lacking and target.state.keys() >= given.keys():
        reason += f". Sizes such as the number of classes are an --option of {maker}"
    return place + reason


def _read(path: Path) -> Any:
    try:
        with opening(path, f"--weights {path}"):
            return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as not_safetensors:
        _refuse_inflated(path)
        # Trainers keep numbers of numpy, paths and settings beside the weights.
        known = {**dict.fromkeys(_classes_of(path), _Omitted), **_PLAIN}
        try:
            with torch.serialization.safe_globals([(kind, name) for name, kind in known.items()]):
                checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds of errors for other files
            if said := pickled_objects(error, path):
                raise InputError(said) from error
            kind = " (it is a TorchScript file)" if _is_torchscript(path) else ""
            raise InputError(
                f"{path} is neither a safetensors file ({not_safetensors}) nor a state dict of "
                f"torch.save{kind}: save the state_dict() of the network where you trained it"
            ) from error
        if others := [name for name, kind in known.items() if kind is _Omitted]:
            names = ", ".join(others[:_MOST_LISTED])
            _logger.info("objects of %s in %s are left out: reading them would run their code", names, path)
        return checkpoint


def _refuse_inflated(path: Path) -> None:
    """Raise InputError for an archive that takes more memory than the file has bytes; torch.save stores."""
    try:
        with path.open("rb") as file:
            size = sum(inflated_sizes(file).values())
    except ValueError:  # not an archive: torch.load may read an older format, or says why it cannot
        return
    if size > (most := path.stat().st_size) and not _is_torchscript(path):
        raise InputError(
            f"{path} must hold its records uncompressed, as torch.save writes them: they have {size} bytes, "
            f"the file has {most}"
        )


def pickled_objects(error: BaseException, path: Path) -> str:
    """Return a sentence if torch refused a file because of objects that are not tensors; else ''."""
    kind = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
    if not isinstance(error, pickle.UnpicklingError) or not (kind or is_zipfile(path)):
        return ""
    named = [kind[1]] if kind else []
    return _refusal(path, [*named, *(name for name in _classes_of(path) if name not in named)])


def _classes_of(path: Path) -> list[str]:
    """Return the classes in a checkpoint that torch does not read; none for a file of an old format."""
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:  # torch raises many kinds of errors for other files
        return []


def _refusal(path: Path, classes: Sequence[str]) -> str:
    name = f" of {classes[0]}" if classes else ""
    more = f" and {len(classes) - 1} more classes" if len(classes) > 1 else ""
    return (
        f"{path} must hold only tensors and plain values, got objects{name}{more}: "
        "reading them would run their code. Save the tensors alone where you trained: "
        "torch.save(model.state_dict(), 'weights.pth'), or for ultralytics "
        "torch.save(YOLO('best.pt').model.state_dict(), 'weights.pth')"
    )


def _is_torchscript(path: Path) -> bool:
    if not is_zipfile(path):
        return False
    with ZipFile(path) as file:
        return any(name.endswith("/constants.pkl") for name in file.namelist())
