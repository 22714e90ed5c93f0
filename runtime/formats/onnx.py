"""ONNX files: the model of `detect`, run by onnxruntime on the CPU."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import named_device
from lensbox.runtime.file.archive import INPUTS, ArtifactFile
from lensbox.runtime.file.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.runtime.formats.detect_only import DetectOnlyMethods


def load(file: ArtifactFile, device_name: str) -> Artifact:
    """Load an ONNX file. device_name: "auto" for the CPU.

    Raise DeviceError for another device than the CPU, and ArtifactError if onnxruntime is not installed or
    rejects the model, or if inputs and outputs do not match the metadata.
    """
    device = named_device("cpu" if device_name == "auto" else device_name)
    if device.type != "cpu":
        raise DeviceError(f"device must be cpu for an ONNX file, got {device} for {file.name}")
    session = onnx_session(file.data, file.name, torch.get_num_threads())
    _check_values(file.name, session, file.metadata)
    outputs = file.metadata.outputs

    def run(images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        thresholds = (np.array(value, np.float32) for value in (score_threshold, iou_threshold))
        found = session.run(None, dict(zip(INPUTS, (images.numpy(), *thresholds), strict=True)))
        return dict(zip(outputs, map(torch.from_numpy, found), strict=True))

    return Artifact(DetectOnlyMethods(run, file.metadata, device), file.metadata, device)


def onnx_session(data: bytes, name: str, threads: int) -> Any:
    """Return an onnxruntime.InferenceSession, whose `run` is thread-safe and shares a pool of threads.

    threads: number of CPU threads for one batch. name: of the file, for messages. Raise ArtifactError if
    onnxruntime is not installed or rejects the model.
    """
    # onnxruntime 1.29 and newer report models and machine to their maker, unless told before their import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
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
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base
        raise ArtifactError(
            f"{name} cannot be loaded by onnxruntime {onnxruntime.__version__}: {error}"
        ) from error


def _check_values(name: str, session: Any, metadata: ArtifactMetadata) -> None:
    """Raise ArtifactError unless names, types and shapes of inputs and outputs match the metadata."""
    form = tuple[str, list[Any]]  # types, and the size of each axis: "any", or a number
    inputs: dict[str, form] = dict.fromkeys(INPUTS, ("float", []))
    inputs["images"] = "uint8", ["any", *metadata.canvas.canvas_shape]
    outputs: dict[str, form] = {"boxes": ("float", ["any", "any", 4]), "scores": ("float", ["any", "any"])}
    outputs["counts"] = "int32 or int64", ["any"]
    if metadata.classes:
        outputs["labels"] = "int64", ["any", "any"]
    for extra_name, extra in metadata.extras.items():
        types = "float" if extra.kind == "points" else "float or int64"
        outputs[extra_name] = types, ["any", "any", *extra.shape]
    unfit = f"{name} does not fit its {METADATA_FILE}: the"
    for kind, values, rules in (
        ("input", session.get_inputs(), inputs),
        ("output", session.get_outputs(), outputs),
    ):
        names = [value.name for value in values]
        if names != list(rules):
            raise ArtifactError(
                f"{unfit} model must have the {kind}s {', '.join(rules)}, got {', '.join(names)}"
            )
        for value, (types, shape) in zip(values, rules.values(), strict=True):
            found = value.type.removeprefix("tensor(").removesuffix(")")
            sizes = [size if isinstance(size, int) else "any" for size in value.shape]
            fits = [rule in ("any", size) for rule, size in zip(shape, sizes, strict=False)]
            if found not in types.split(" or ") or len(sizes) != len(shape) or not all(fits):
                rule, actual = (str(axes).replace("'", "") for axes in (shape, sizes))
                raise ArtifactError(
                    f"{unfit} {kind} {value.name} must be {types} {rule}, got {found} {actual}"
                )
