"""Loading an artifact's ONNX file: the model of `detect`, with `lensbox.json` among its properties."""

from collections.abc import Mapping, Sequence

import torch

from lensbox.artifact.archive import INPUTS
from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.artifact.seal import check_seal
from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detect_only_loading import detect_only_artifact, read_stored
from lensbox.runtime.onnx_options import OnnxOptions
from lensbox.runtime.onnxruntime_session import OnnxruntimeSession, Value


def load_onnx_bytes(data: bytes, name: str, device: torch.device, options: OnnxOptions) -> Artifact:
    """Loads an artifact from the content of an ONNX file; errors call it `name`.

    Raises DeviceError for another device than the CPU, and ArtifactError if the file is damaged, was not
    written by Lensbox or not for this version, if it cannot be run, or if the runtime is not installed.
    """
    if device.type != "cpu":
        raise DeviceError(f"device must be cpu for an ONNX file, got {device} for {name}")
    metadata, session = _opened(data, name, options.threads or torch.get_num_threads())
    run = session.run
    if options.runtime == "openvino":
        from lensbox.runtime.openvino_session import OpenvinoSession

        run = OpenvinoSession(data, name, options, metadata.outputs).run
    return detect_only_artifact(run, metadata, device, rounded=options.precision != "float32")


def read_onnx_metadata(data: bytes, name: str) -> ArtifactMetadata:
    """The metadata of an ONNX file, checked as if it were to be loaded. Raises ArtifactError."""
    return _opened(data, name, threads=1)[0]


def _opened(data: bytes, name: str, threads: int) -> tuple[ArtifactMetadata, OnnxruntimeSession]:
    try:
        check_seal(data)
    except ValueError as error:
        raise ArtifactError(f"{name} {error}") from error
    session = OnnxruntimeSession(data, name, threads)
    text = session.properties.get(METADATA_FILE)
    if text is None:
        raise ArtifactError(
            f"{name} is not a Lensbox artifact: it holds no {METADATA_FILE} (a network alone has none)"
        )
    metadata = read_stored(text, name)
    _check_values(name, session, metadata)
    return metadata, session


def _check_values(name: str, session: OnnxruntimeSession, metadata: ArtifactMetadata) -> None:
    """Raises ArtifactError unless the model's inputs and outputs are those of the metadata."""
    canvas = (metadata.canvas.channels, metadata.canvas.height, metadata.canvas.width)
    inputs = {"images": Value(("uint8",), (None, *canvas))}
    inputs |= dict.fromkeys(INPUTS[1:], Value(("float",), ()))
    integer, slots = ("int32", "int64"), (None, None)
    outputs = {
        "boxes": Value(("float",), (*slots, 4)),
        "scores": Value(("float",), slots),
        "counts": Value(integer, (None,)),
    }
    if metadata.classes:
        outputs["labels"] = Value(("int64",), slots)
    for extra_name, extra in metadata.extras.items():
        types = ("float",) if extra.kind == "points" else ("float", "int64")
        outputs[extra_name] = Value(types, (*slots, *extra.shape))
    for kind, actual, wanted in (("input", session.inputs, inputs), ("output", session.outputs, outputs)):
        _check_side(name, kind, actual, wanted)


def _check_side(name: str, kind: str, actual: Mapping[str, Value], wanted: Mapping[str, Value]) -> None:
    if list(actual) != list(wanted):
        raise ArtifactError(
            f"{name} does not fit its {METADATA_FILE}: the model must have the {kind}s {', '.join(wanted)}, "
            f"it has {', '.join(actual)}"
        )
    for value_name, value in actual.items():
        rule = wanted[value_name]
        if not set(value.types) <= set(rule.types) or not _fits(value.shape, rule.shape):
            raise ArtifactError(
                f"{name} does not fit its {METADATA_FILE}: its {kind} {value_name} must be {rule}, "
                f"it is {value}"
            )


def _fits(shape: Sequence[int | None], rule: Sequence[int | None]) -> bool:
    """Where the rule has a size the shape must have it; where it has none, any will do."""
    return len(shape) == len(rule) and all(
        wanted is None or size == wanted for size, wanted in zip(shape, rule, strict=True)
    )
