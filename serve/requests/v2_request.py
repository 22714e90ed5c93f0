"""Read inference requests of protocol v2.

The body is JSON. With the header Inference-Header-Content-Length, that many bytes are JSON, followed by the
content of each tensor with a `binary_data_size`, little-endian, in their order.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Annotated, Any, NamedTuple

import torch
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder
from torch import Tensor

from lensbox.common.detect_options import check_thresholds
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.serve.errors import ApiError, shown
from lensbox.serve.requests.body import Body, read_json

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
_Byte = Annotated[int, Meta(ge=0, le=255)]
_Side = Annotated[int, Meta(ge=1)]
# Decoders of a tensor's numbers, by datatype and depth of nesting.
_NUMBERS: dict[tuple[str, int], Decoder[Any]] = {
    ("FP32", 1): Decoder(list[float]),
    ("UINT8", 1): Decoder(list[_Byte]),
    ("UINT8", 4): Decoder(list[list[list[list[_Byte]]]]),
}


class TensorSpec(Struct, frozen=True):
    """Name, datatype and shape of an input or output; -1 marks a side that varies."""

    name: str
    datatype: str
    shape: tuple[int, ...]


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
    return ModelTensors(inputs, tuple(_output(name, metadata.output[name]) for name in metadata.outputs))


def _output(name: str, described: Mapping[str, Any]) -> TensorSpec:
    """Return an output that the artifact's `output` describes; B and K are sides that vary."""
    shape = tuple(side if isinstance(side, int) else -1 for side in described["shape"])
    return TensorSpec(name, "INT32" if name == "counts" else _BY_NAME[described["dtype"]], shape)


class _Parameters(Struct):
    """The parameters of a request, an input or an output. The protocol says to ignore unknown ones.

    timeout: microseconds; 0: none.
    """

    binary_data_size: int | None = None
    binary_data: bool | None = None
    binary_data_output: bool = False
    classification: int = 0
    timeout: Annotated[int, Meta(ge=0)] = 0


class _Input(Struct):
    name: str
    datatype: str
    shape: list[_Side]
    parameters: _Parameters | None = None
    data: Raw = Raw()


class _Output(Struct):
    name: str
    parameters: _Parameters | None = None


class _Question(Struct):
    inputs: list[_Input]
    outputs: list[_Output] | None = None
    id: str | None = None
    parameters: _Parameters | None = None


_QUESTION = Decoder(_Question)


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
    # Fewer than 20 digits, because int() raises ValueError for thousands of digits.
    is_number = value is None or (value.isascii() and value.isdigit() and len(value) < 20)
    length = body_length if value is None or not is_number else int(value)
    if not is_number or length > body_length:
        rule = f"must be a number of bytes of the body, from 0 to {body_length}"
        raise _invalid(f"Inference-Header-Content-Length {rule}, got {shown(value)}")
    if length > most:
        message = f"JSON must have at most {most} bytes, got {length}; send large tensors as binary"
        raise ApiError(413, "body_too_large", message)
    return length


def read_infer_request(body: Body, json_length: int, tensors: ModelTensors) -> InferRequest:
    """Return the request in a body. Canvases of a binary tensor share the memory of a bytearray.

    json_length: from `header_length`. Raises ApiError (400).
    """
    content = memoryview(body if isinstance(body, bytearray) else bytearray(body))
    question = read_json(content[:json_length], _QUESTION, 400, "invalid_inference")
    parameters = question.parameters or _Parameters()
    given = _inputs(question.inputs, tensors.inputs, content[json_length:])
    if "images" not in given:
        raise _invalid(f"the input 'images' must be given, got {shown(sorted(given))}")
    thresholds = {name: float(given[name]) for name in THRESHOLDS if name in given}
    try:
        check_thresholds(**thresholds)
    except ValueError as error:
        raise _invalid(str(error)) from None
    return InferRequest(
        # Triton omits an empty id from its answer.
        id=question.id or None,
        canvases=given["images"],
        score_threshold=thresholds.get("score_threshold"),
        iou_threshold=thresholds.get("iou_threshold"),
        wanted=_wanted(question.outputs or [], tensors.outputs, parameters.binary_data_output),
        timeout=parameters.timeout / 1e6 or None,
    )


def _inputs(inputs: Sequence[_Input], specs: Sequence[TensorSpec], binary: memoryview) -> dict[str, Tensor]:
    """Return the tensors by name. binary: the bytes after the JSON."""
    by_name = {spec.name: spec for spec in specs}
    tensors: dict[str, Tensor] = {}
    for given in inputs:
        name, shape = given.name, given.shape
        if name not in by_name:
            raise _invalid(f"an input must be named one of {', '.join(by_name)}, got {shown(name)}")
        if name in tensors:
            raise _invalid(f"the input {name!r} must be given once, got it twice")
        _check_tensor(given, by_name[name])
        declared = None if given.parameters is None else given.parameters.binary_data_size
        text = bytes(given.data)
        if (declared is None) == (not text):
            got = "neither" if declared is None else "both"
            raise _invalid(f"the input {name!r} must have data or a binary_data_size, got {got}")
        if declared is None:
            tensors[name] = _from_json(given, text)
            continue
        dtype = _DTYPES[given.datatype]
        size = math.prod(shape) * dtype.itemsize
        if declared != size:
            raise _invalid(
                f"binary_data_size of {name!r} must be {shown(size)} for its shape, got {declared}"
            )
        if size > len(binary):
            raise _invalid(f"the input {name!r} must have {size} bytes after the JSON, got {len(binary)}")
        tensors[name] = torch.frombuffer(binary[:size], dtype=dtype).view(shape)
        binary = binary[size:]
    if binary:
        raise _invalid(f"the inputs must have no more bytes after the JSON, got {len(binary)}")
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


def _from_json(given: _Input, text: bytes) -> Tensor:
    """Return the tensor in `data`, which is flat in row-major order or nested."""
    shape, name = given.shape, f"data of {given.name!r}"
    # Count arrays before parsing, which holds the GIL: a megabyte of empty lists takes 0.1 s.
    arrays, nested = text.count(b"["), 1 + sum(accumulate(shape[:-1], mul))
    if arrays not in (1, nested):
        raise _invalid(f"{name} must be flat, or nested with the shape {shape}, got {arrays} arrays")
    depth = 1 if arrays == 1 else len(shape)
    numbers = read_json(text, _NUMBERS[given.datatype, depth], 400, "invalid_inference", name)
    try:
        tensor = torch.tensor(numbers, dtype=_DTYPES[given.datatype])
    except ValueError as error:  # rows of different lengths
        raise _invalid(f"{name} must be flat, or nested with the shape {shape}: {error}") from None
    if list(tensor.shape) not in ([math.prod(shape)], shape):
        got = list(tensor.shape)
        raise _invalid(f"{name} must be flat, or nested with the shape {shape}, got the shape {got}")
    return tensor.view(shape)


def _wanted(outputs: Sequence[_Output], specs: Sequence[TensorSpec], binary: bool) -> tuple[Wanted, ...]:
    """Return the requested outputs; all outputs if none is named. binary: the default of `binary_data`."""
    names = [spec.name for spec in specs]
    asked: dict[str, bool] = {}
    for output in outputs:
        name, parameters = output.name, output.parameters or _Parameters()
        if name not in names:
            raise _invalid(f"an output must be named one of {', '.join(names)}, got {shown(name)}")
        if parameters.classification:
            raise _invalid(f"the output {name!r} cannot be returned as a classification")
        asked[name] = binary if parameters.binary_data is None else parameters.binary_data
    if not asked:
        return tuple(Wanted(spec, binary) for spec in specs)
    return tuple(Wanted(spec, asked[spec.name]) for spec in specs if spec.name in asked)


def _invalid(message: str) -> ApiError:
    return ApiError(400, "invalid_inference", message)
