"""Read inference requests of protocol v2.

The body is JSON. With the header Inference-Header-Content-Length, that many bytes are JSON, followed by the
content of each tensor with a `binary_data_size`, little-endian, in their order.
"""

import contextlib
import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, Field, FiniteFloat, TypeAdapter, ValidationError
from torch import Tensor

from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.serve.errors import ApiError, shown
from lensbox.serve.requests.json_body import check_counts, read_json

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
_DTYPES = {"UINT8": torch.uint8, "FP32": torch.float32}  # of inputs
_Byte = Annotated[int, Field(ge=0, le=255)]
_NUMBERS: dict[str, tuple[TypeAdapter[list[Any]], str]] = {
    "UINT8": (TypeAdapter(Annotated[list[_Byte], Field(fail_fast=True)]), "integers from 0 to 255"),
    "FP32": (TypeAdapter(Annotated[list[FiniteFloat], Field(fail_fast=True)]), "finite numbers"),
}
# Limits far above the needs of all inputs and outputs.
_MOST_ARRAYS, _MOST_OBJECTS, _MOST_QUOTES = 64, 512, 4096


class TensorSpec(NamedTuple):
    """Name, datatype and shape of an input or output; -1 marks a variable dimension."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the tensor as protocol v2 describes it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


class ModelTensors(NamedTuple):
    """Inputs (all but `images` are optional) and outputs, in order."""

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
    """Return the number of boxes per image, K; -1 if it varies or is unknown."""
    match metadata.output.get("boxes"):
        case {"shape": [_, int(slots), 4]} if slots > 0:
            return slots
    return -1


def _datatype(metadata: ArtifactMetadata, name: str, usual: str) -> str:
    match metadata.output.get(name):
        case {"dtype": str(dtype)}:
            return _BY_NAME.get(dtype, usual)
    return usual


class _Parameters(BaseModel):
    """Parameters that requests and tensors share. The protocol says to ignore unknown ones."""

    shared_memory_region: Any = None


class _InputParameters(_Parameters):
    binary_data_size: int | None = None


class _OutputParameters(_Parameters):
    binary_data: bool | None = None
    classification: int = 0


class _RequestParameters(_Parameters):
    binary_data_output: bool = False
    timeout: Annotated[int, Field(ge=0)] = 0  # microseconds; 0: none


class _Input(BaseModel):
    name: str
    datatype: str
    shape: list[Annotated[int, Field(ge=1)]] = Field(fail_fast=True)
    parameters: _InputParameters | None = None
    data: list[Any] | None = None


class _Output(BaseModel):
    name: str
    parameters: _OutputParameters | None = None


class _Question(BaseModel):
    id: str | None = None
    inputs: list[_Input] = Field(fail_fast=True)
    outputs: list[_Output] | None = Field(None, fail_fast=True)
    parameters: _RequestParameters | None = None


class Wanted(NamedTuple):
    """A requested output. binary: True to send it as binary."""

    output: TensorSpec
    binary: bool


class InferRequest(NamedTuple):
    """canvases: uint8 [n, c, h, w], n >= 1. wanted: in order. timeout: seconds, or None."""

    id: str | None
    canvases: Tensor
    score_threshold: float | None
    iou_threshold: float | None
    wanted: tuple[Wanted, ...]
    timeout: float | None = None


def header_length(value: str | None, body_length: int, most: int) -> int:
    """Return how many bytes of a body are JSON. value: the header Inference-Header-Content-Length, or None.

    Raises ApiError: 400 unless the length is a number from 0 to `body_length`, 413 for more than `most`.
    """
    length = body_length
    if value is not None:
        # Fewer than 20 digits, because int() raises ValueError for thousands of digits.
        if not (value.isascii() and value.isdigit() and len(value) < 20 and int(value) <= body_length):
            raise _invalid(
                "Inference-Header-Content-Length must be a number of bytes of the body, "
                f"from 0 to {body_length}, got {shown(value)}"
            )
        length = int(value)
    if length > most:
        message = f"JSON must have at most {most} bytes, got {length}; send large tensors as binary"
        raise ApiError(413, "body_too_large", message)
    return length


def read_infer_request(body: bytes | bytearray, json_length: int, tensors: ModelTensors) -> InferRequest:
    """Return the request in a body. Canvases of a binary tensor share the body's memory.

    json_length: from `header_length`. Raises ApiError (400).
    """
    header = bytes(memoryview(body)[:json_length])
    _check_size(header, tensors.inputs[0].shape[-1])
    question = read_json(header, _Question, 400, "invalid_inference")
    parameters = question.parameters or _RequestParameters()
    _check_parameters("the request", parameters)
    contents = _inputs(question.inputs, tensors.inputs, memoryview(body)[json_length:])
    if "images" not in contents:
        raise _invalid(f"the input 'images' must be given, got {shown(sorted(contents))}")
    return InferRequest(
        # Triton omits an empty id from its answer.
        id=question.id or None,
        canvases=contents["images"],
        **{name: _threshold(name, contents.get(name)) for name in THRESHOLDS},
        wanted=_wanted(question.outputs or [], tensors.outputs, parameters.binary_data_output),
        timeout=parameters.timeout / 1e6 or None,
    )


def _check_size(header: bytes, row: int) -> None:
    """Raise ApiError (400) for more arrays, objects or strings than a request needs. row: canvas width."""
    # JSON pixels are nested arrays: images of planes of rows. Each holds at least a row's numbers.
    most_arrays = _MOST_ARRAYS + 3 * (header.count(b",") + 1) // row
    most = {"arrays": most_arrays, "objects": _MOST_OBJECTS, "quotes": _MOST_QUOTES}
    check_counts(header, most, 400, "invalid_inference", "the JSON of this request")


def _check_parameters(owner: str, parameters: _Parameters) -> None:
    if parameters.shared_memory_region is not None:
        raise _invalid(f"{owner} must be in the body; this service has no shared memory with clients")


def _inputs(inputs: Sequence[_Input], specs: Sequence[TensorSpec], binary: memoryview) -> dict[str, Tensor]:
    """Return the tensors by name. binary: the bytes after the JSON."""
    by_name = {spec.name: spec for spec in specs}
    tensors: dict[str, Tensor] = {}
    offset = 0
    for index, given in enumerate(inputs):
        name, shape = given.name, given.shape
        if name not in by_name:
            raise _invalid(f"inputs[{index}] must be named one of {', '.join(by_name)}, got {shown(name)}")
        if name in tensors:
            raise _invalid(f"the input {name!r} must be given once, got it twice")
        _check_tensor(given, by_name[name])
        parameters = given.parameters or _InputParameters()
        _check_parameters(f"inputs[{index}]", parameters)
        declared = parameters.binary_data_size
        if (declared is None) == (given.data is None):
            got = "neither" if declared is None else "both"
            raise _invalid(f"the input {name!r} must have data or a binary_data_size, got {got}")
        if declared is None:
            tensors[name] = _from_json(given)
            continue
        dtype = _DTYPES[given.datatype]
        size = math.prod(shape) * dtype.itemsize
        if declared != size:
            rule = f"must be {shown(size)} for the shape {shown(shape)}"
            raise _invalid(f"binary_data_size of {name!r} {rule}, got {shown(declared)}")
        if offset + size > len(binary):
            left = len(binary) - offset
            raise _invalid(f"the input {name!r} must have {size} bytes after the JSON, got {left}")
        tensors[name] = torch.frombuffer(binary[offset : offset + size], dtype=dtype).view(shape)
        offset += size
    if offset != len(binary):
        raise _invalid(f"the inputs must have {offset} bytes after the JSON, got {len(binary)}")
    return tensors


def _check_tensor(given: _Input, spec: TensorSpec) -> None:
    """Raise ApiError unless `spec` allows datatype and shape."""
    name, shape = spec.name, given.shape
    if given.datatype != spec.datatype:
        raise _invalid(f"the datatype of {name!r} must be {spec.datatype}, got {shown(given.datatype)}")
    sides = len(shape) == len(spec.shape) and zip(shape, spec.shape, strict=True)
    if not sides or any(rule not in (-1, side) for side, rule in sides):
        most = " of at least 1 image" if -1 in spec.shape else ""
        raise _invalid(f"the shape of {name!r} must be {list(spec.shape)}{most}, got {shown(shape)}")


def _from_json(given: _Input) -> Tensor:
    """Return the tensor in `data`, which is flat in row-major order or nested."""
    values = np.array(given.data, dtype=object)
    if values.shape not in ((math.prod(given.shape),), tuple(given.shape)):
        rule = f"must be flat, or nested with the shape {given.shape}"
        raise _invalid(f"data of {given.name!r} {rule}, got an array of shape {list(values.shape)}")
    numbers = values.ravel().tolist()
    with contextlib.suppress(ValueError):  # twice as fast as pydantic, for pixels
        if given.datatype == "UINT8" and set(map(type, numbers)) == {int}:
            return torch.frombuffer(bytearray(numbers), dtype=torch.uint8).view(given.shape)
    adapter, rule = _NUMBERS[given.datatype]
    try:
        adapter.validate_python(numbers, strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]["input"]
        raise _invalid(f"data of {given.name!r} must be {rule}, got {shown(wrong)}") from None
    return torch.tensor(numbers, dtype=_DTYPES[given.datatype]).view(given.shape)


def _threshold(name: str, tensor: Tensor | None) -> float | None:
    if tensor is None:
        return None
    value = float(tensor)
    if not 0 <= value <= 1:  # true for NaN, too
        raise _invalid(f"{name} must be between 0 and 1, got {value:g}")
    return value


def _wanted(outputs: Sequence[_Output], specs: Sequence[TensorSpec], binary: bool) -> tuple[Wanted, ...]:
    """Return the requested outputs; all outputs if none is named. binary: the default of `binary_data`."""
    names = [spec.name for spec in specs]
    asked: dict[str, bool] = {}
    for index, output in enumerate(outputs):
        name = output.name
        if name not in names:
            raise _invalid(f"outputs[{index}] must be named one of {', '.join(names)}, got {shown(name)}")
        parameters = output.parameters or _OutputParameters()
        _check_parameters(f"outputs[{index}]", parameters)
        if parameters.classification:
            raise _invalid(f"the output {name!r} cannot be returned as a classification")
        asked[name] = binary if parameters.binary_data is None else parameters.binary_data
    if not asked:
        return tuple(Wanted(spec, binary) for spec in specs)
    return tuple(Wanted(spec, asked[spec.name]) for spec in specs if spec.name in asked)


def _invalid(message: str) -> ApiError:
    return ApiError(400, "invalid_inference", message)
