"""ONNX files: the model of `detect`, run by onnxruntime on the CPU."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import named_device
from lensbox.runtime.file.archive import INPUTS, ArtifactFile
from lensbox.runtime.file.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.runtime.formats.detect_only import detect_only_artifact


def load(file: ArtifactFile, device_name: str) -> Artifact:
    """Load an ONNX file. device_name: "auto" for the CPU.

    Raise DeviceError for another device than the CPU, and ArtifactError if onnxruntime is not installed or
    rejects the model, or if inputs and outputs do not match the metadata.
    """
    device = named_device("cpu" if device_name == "auto" else device_name)
    if device.type != "cpu":
        raise DeviceError(f"device must be cpu for an ONNX file, got {device} for {file.name}")
    session = OnnxruntimeSession(file.data, file.name, torch.get_num_threads())
    _check_values(file.name, session, file.metadata)
    return detect_only_artifact(session.run, file.metadata, device)


class Value(NamedTuple):
    """An input or output of a model. types: ONNX's names, such as "float"; a rule may allow several. shape:
    None for a varying size."""

    types: tuple[str, ...]
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        sizes = ", ".join("any" if size is None else str(size) for size in self.shape)
        return f"{' or '.join(self.types)} [{sizes}]"

    def fits(self, rule: "Value") -> bool:
        """Return whether a rule allows the type and the sizes; its None allows any size."""
        sizes = zip(self.shape, rule.shape, strict=False)
        return (
            set(self.types) <= set(rule.types)
            and len(self.shape) == len(rule.shape)
            and all(wanted in (None, size) for size, wanted in sizes)
        )


class OnnxruntimeSession:
    """A model in onnxruntime. `run` is thread-safe; its callers share the session's thread pool.

    inputs, outputs: by name, in the model's order.
    """

    def __init__(self, data: bytes, name: str, threads: int) -> None:
        """threads: number of CPU threads for one batch. name: of the file, for messages. Raise ArtifactError
        if onnxruntime is not installed or rejects the model."""
        try:
            import onnxruntime
        except ImportError as error:
            raise ArtifactError(
                f"{name} is an ONNX file, which needs onnxruntime: pip install 'lensbox[onnx]' ({error})"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # fatal errors only: warnings concern the export
        # onnxruntime would else take some files as its own format, in which nobody checked the operators.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no common base
            raise ArtifactError(
                f"{name} cannot be loaded by onnxruntime {onnxruntime.__version__}: {error}"
            ) from error
        self.inputs = {value.name: _value(value) for value in self._session.get_inputs()}
        self.outputs = {value.name: _value(value) for value in self._session.get_outputs()}

    def run(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        """Return the outputs by name. images: uint8 [B, c, h, w], contiguous, on the CPU, with B >= 1."""
        feed = {
            "images": images.numpy(),
            "score_threshold": np.array(score_threshold, np.float32),
            "iou_threshold": np.array(iou_threshold, np.float32),
        }
        found = self._session.run(None, feed)
        return dict(zip(self.outputs, map(torch.from_numpy, found), strict=True))


def _value(value: Any) -> Value:
    """value: an `onnxruntime.NodeArg`, whose type reads 'tensor(float)'."""
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    return Value((kind,), tuple(size if isinstance(size, int) else None for size in value.shape))


def _check_values(name: str, session: OnnxruntimeSession, metadata: ArtifactMetadata) -> None:
    """Raise ArtifactError unless names, types and shapes of inputs and outputs match the metadata."""
    canvas = (metadata.canvas.channels, metadata.canvas.height, metadata.canvas.width)
    inputs = {"images": Value(("uint8",), (None, *canvas))}
    inputs |= dict.fromkeys(INPUTS[1:], Value(("float",), ()))
    slots = (None, None)
    outputs = {
        "boxes": Value(("float",), (*slots, 4)),
        "scores": Value(("float",), slots),
        "counts": Value(("int32", "int64"), (None,)),
    }
    if metadata.classes:
        outputs["labels"] = Value(("int64",), slots)
    for extra_name, extra in metadata.extras.items():
        types = ("float",) if extra.kind == "points" else ("float", "int64")
        outputs[extra_name] = Value(types, (*slots, *extra.shape))
    for kind, actual, wanted in (("input", session.inputs, inputs), ("output", session.outputs, outputs)):
        if list(actual) != list(wanted):
            raise ArtifactError(
                f"{name} does not fit its {METADATA_FILE}: the model must have the {kind}s "
                f"{', '.join(wanted)}, got {', '.join(actual)}"
            )
        for value_name, rule in wanted.items():
            if not actual[value_name].fits(rule):
                raise ArtifactError(
                    f"{name} does not fit its {METADATA_FILE}: the {kind} {value_name} must be {rule}, "
                    f"got {actual[value_name]}"
                )
