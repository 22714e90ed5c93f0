"""Save and load weights as safetensors, with the detector's config in the file's metadata."""

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import safetensors
import safetensors.torch
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lensbox.common.errors import InputError, reading
from lensbox.common.fields import Fraction
from lensbox.common.files import atomic_write, open_regular
from lensbox.common.torch_settings import torch_defaults
from lensbox.model.config import DetectorConfig
from lensbox.model.face_detector import FaceDetector

_FOLDER = Path(__file__).parent / "weights"
SHIPPED_WEIGHTS = _FOLDER / "face_detector.safetensors"  # of size base
SHIPPED_SIZES = {"base": SHIPPED_WEIGHTS, "large": _FOLDER / "face_detector_large.safetensors"}
CONFIG_KEY = "config"
FIGURES_KEY = "figures"  # of an evaluation, as JSON
DEFAULT_THRESHOLD = 0.5


def save_detector(
    detector: FaceDetector,
    path: str | Path,
    metadata: dict[str, str] | None = None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write the detector's weights, its config and further `metadata` atomically.

    dtype: of the weights in the file; float16 halves the file. Raise ValueError if `metadata` uses the key
    'config', and OSError.
    """
    metadata = dict(metadata or {})
    if CONFIG_KEY in metadata:
        raise ValueError(f"metadata must not use the key {CONFIG_KEY!r}: it holds the detector's config")
    metadata[CONFIG_KEY] = detector.config.to_json()
    tensors = {
        name: value.detach().to("cpu", dtype if value.is_floating_point() else value.dtype).contiguous()
        for name, value in detector.state_dict().items()
    }
    atomic_write(path, safetensors.torch.save(tensors, metadata))


@torch_defaults()
def load_detector(path: str | Path | None = None) -> FaceDetector:
    """Load a file of `save_detector`; return the detector on the CPU, in eval mode.

    path: None for the shipped weights. Raise InputError if the file is missing, is not a safetensors file,
    has no config, or if its tensors do not match the config or are not finite.
    """
    path = SHIPPED_WEIGHTS if path is None else Path(path)
    if not path.is_file():
        raise InputError(f"path must be a weights file (.safetensors), got {path}")
    try:
        with opening(path, str(path)), safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except safetensors.SafetensorError as error:
        hint = " (is it an artifact? `lensbox train` writes weights)" if is_zipfile(path) else ""
        raise InputError(f"{path} is not a safetensors file: {error}{hint}") from error
    if CONFIG_KEY not in metadata:
        raise InputError(f"{path} has no {CONFIG_KEY!r} in its metadata: it was not written by save_detector")
    try:
        detector = FaceDetector(DetectorConfig.from_json(metadata[CONFIG_KEY]))
    except ValueError as error:
        raise InputError(f"{path} does not hold a face detector: {error}") from error
    if (reason := misfit(tensors, detector.state_dict(), "the config")) is not None:
        raise InputError(f"{path}: {reason}")
    detector.load_state_dict(tensors)
    if (reason := non_finite_weights(detector)) is not None:
        raise InputError(f"{path}: {reason}")
    return detector.eval()


@contextlib.contextmanager
def opening(path: Path, name: str) -> Iterator[None]:
    """Raise InputError if the file cannot be opened within the context. name: of the file, for messages."""
    with reading(name, InputError):
        open_regular(path).close()  # safetensors reports any file that it cannot open as missing
        yield


def non_finite_weights(detector: nn.Module) -> str | None:
    """Return a sentence about the first tensor that holds NaN or infinity; None if all are finite.

    Buffers may hold -infinity, as attention masks do.
    """
    parameters = {name for name, _ in detector.named_parameters(remove_duplicate=False)}
    for name, value in _tensors(detector).items():
        fine = value.isfinite() if name in parameters else value < math.inf  # NaN fails
        wrong = int((~fine).sum())
        if wrong:
            return (
                f"the weights must be finite, got {wrong} of {value.numel()} values NaN or infinite in {name}"
            )
    return None


def read_metadata(path: str | Path | None = None) -> dict[str, str]:
    """Return the metadata of a weights file. path: None for the shipped weights."""
    path = SHIPPED_WEIGHTS if path is None else Path(path)
    with opening(path, str(path)), safetensors.safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def recommended_threshold(path: str | Path | None = None) -> float:
    """Return the score threshold with the best F1 in the evaluation after training, to two decimals.

    path: a weights file; None for the shipped weights. Return 0.5 if the metadata lack the threshold.
    """
    try:
        found = json.loads(read_metadata(path)[FIGURES_KEY])["recommended_threshold"]
        return round(TypeAdapter(Fraction).validate_python(found), 2)
    except (KeyError, TypeError, ValueError, RecursionError):
        return DEFAULT_THRESHOLD


def weights_sha256(detector: nn.Module) -> str:
    """Return the SHA-256, in hex, over names, dtypes, shapes and bytes of the state, sorted by name.

    The hash identifies the weights, independent of file and metadata.
    """
    digest = hashlib.sha256()
    for name, value in sorted(_tensors(detector).items()):
        tensor = value.detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _tensors(detector: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of the state, without the values of `get_extra_state`."""
    state = detector.state_dict()
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def misfit(tensors: Mapping[str, Any], expected: Mapping[str, Any], owner: str) -> str | None:
    """Return a sentence about the tensors that are missing, left over or of another shape; None if all match.

    owner: of the expected tensors, such as "the config".
    """

    def of(name: str, values: Mapping[str, Any]) -> str:
        value = values[name]
        if not isinstance(value, Tensor) or is_lazy(value):
            return "of any shape"
        kind = " without numbers" if value.is_meta else "" if value.layout == torch.strided else " sparse"
        return f"{list(value.shape)}{kind}"

    missing = [name for name in expected if name not in tensors]
    others = [name for name in tensors if name not in expected]
    both = [name for name in tensors if name in expected]
    reshaped = [name for name in both if of(name, expected) not in (of(name, tensors), "of any shape")]
    parts = []
    if missing:
        first = f"{missing[0]} {of(missing[0], expected)}"
        parts.append(f"{len(missing)} of {len(expected)} tensors are missing, such as {first}")
    if others:
        parts.append(
            f"{len(others)} tensors are not in {owner}, such as {others[0]} {of(others[0], tensors)}"
        )
    if reshaped:
        first = min(reshaped, key=lambda name: expected[name].numel())  # of a class, rather than of a channel
        parts.append(
            f"{len(reshaped)} tensors have another shape, such as {first}, which must be "
            f"{of(first, expected)} and is {of(first, tensors)}"
        )
    return f"the tensors must be those of {owner}: {'; '.join(parts)}" if parts else None
