"""The tensors that an artifact takes and gives, as protocol v2 names them."""

from typing import Any, NamedTuple

import torch

from lensbox.artifact.metadata import ArtifactMetadata

DATATYPES = {
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.float16: "FP16",
    torch.float32: "FP32",
    torch.float64: "FP64",
}
_BY_NAME = {str(dtype).removeprefix("torch."): datatype for dtype, datatype in DATATYPES.items()}
THRESHOLDS = ("score_threshold", "iou_threshold")


class TensorSpec(NamedTuple):
    """Name, datatype and shape of an input or output, -1 where a side may vary."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


class ModelTensors(NamedTuple):
    """Inputs, of which all but `images` may be left out, and outputs, both in their order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def model_tensors(metadata: ArtifactMetadata) -> ModelTensors:
    """Return the input and output tensors of an artifact."""
    canvas = metadata.canvas
    inputs = (
        TensorSpec("images", "UINT8", (-1, canvas.channels, canvas.height, canvas.width)),
        *(TensorSpec(name, "FP32", (1,)) for name in THRESHOLDS),
    )
    slots = _slots(metadata)
    outputs = [
        TensorSpec("boxes", _datatype(metadata, "boxes", "FP32"), (-1, slots, 4)),
        TensorSpec("scores", _datatype(metadata, "scores", "FP32"), (-1, slots)),
        TensorSpec("counts", "INT32", (-1,)),
    ]
    if metadata.classes:
        outputs.append(TensorSpec("labels", _datatype(metadata, "labels", "INT64"), (-1, slots)))
    for name, extra in metadata.extras.items():
        outputs.append(TensorSpec(name, _datatype(metadata, name, "FP32"), (-1, slots, *extra.shape)))
    return ModelTensors(inputs, tuple(outputs))


def _slots(metadata: ArtifactMetadata) -> int:
    """K, the number of boxes an image, -1 if it varies or is not told: `output` is checked by nobody else."""
    match metadata.output.get("boxes"):
        case {"shape": [_, int(slots), 4]} if slots > 0:
            return slots
    return -1


def _datatype(metadata: ArtifactMetadata, name: str, usual: str) -> str:
    match metadata.output.get(name):
        case {"dtype": str(dtype)}:
            return _BY_NAME.get(dtype, usual)
    return usual
