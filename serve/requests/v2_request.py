"""Read inference requests of protocol v2.

The body is JSON. With the header Inference-Header-Content-Length, that many bytes are JSON, followed by the
content of each tensor with a `binary_data_size`, little-endian, in their order.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.serve.requests.errors import ApiError, shown
from lensbox.serve.requests.json_body import check_counts, parse_json

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
_SIZES = {"UINT8": 1, "FP32": 4}  # bytes of a number
# Far more than all inputs and outputs need.
_MOST_ARRAYS, _MOST_OBJECTS, _MOST_QUOTES = 64, 512, 4096


class TensorSpec(NamedTuple):
    """Name, datatype and shape of an input or output; -1 marks a side that varies."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the tensor as protocol v2 describes it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


class ModelTensors(NamedTuple):
    """Inputs (all but `images` are optional) and outputs, in their order."""

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


class Wanted(NamedTuple):
    """An output that the client wants, and whether in binary."""

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

    Raises ApiError: 400 for a length that is no number or more than there is, 413 for more than `most`.
    """
    length = body_length
    if value is not None:
        # Few digits: Python refuses to read thousands of them with an error of its own.
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
    try:
        question = parse_json(header)
    except ValueError as error:
        raise _invalid(f"the request must be JSON: {error}") from None
    question = _object("the request", question)
    request_id = question.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise _invalid(f"id must be a string, got {shown(request_id)}")
    contents = _inputs(question, tensors.inputs, memoryview(body)[json_length:])
    images = tensors.inputs[0]
    if images.name not in contents:
        raise _invalid(f"the input 'images' must be given, got {shown(sorted(contents))}")
    shape, pixels = contents[images.name]
    return InferRequest(
        # Triton leaves an empty one out of its answer.
        id=request_id or None,
        canvases=torch.frombuffer(pixels, dtype=torch.uint8).view(shape),
        **{name: _threshold(name, contents[name][1]) if name in contents else None for name in THRESHOLDS},
        wanted=_wanted(question, tensors.outputs),
        timeout=_timeout(_parameters("the request", question)),
    )


def _check_size(header: bytes, row: int) -> None:
    """Raise ApiError (400) for more arrays, objects or strings than a request needs. row: pixels of a row."""
    # JSON pixels are rows in planes in images: three kinds of arrays, each of at least a row's numbers.
    most_arrays = _MOST_ARRAYS + 3 * (header.count(b",") + 1) // row
    most = {"arrays": most_arrays, "objects": _MOST_OBJECTS, "quotes": _MOST_QUOTES}
    check_counts(header, most, 400, "invalid_inference", "the JSON of this request")


def _inputs(
    question: Mapping[str, Any], specs: Sequence[TensorSpec], binary: memoryview
) -> dict[str, tuple[list[int], Any]]:
    """Return shape and content (little-endian bytes) of each input."""
    by_name = {spec.name: spec for spec in specs}
    contents: dict[str, tuple[list[int], Any]] = {}
    offset = 0
    for index, item in enumerate(_list("inputs", question.get("inputs"))):
        tensor = _object(f"inputs[{index}]", item)
        name = tensor.get("name")
        if not isinstance(name, str) or name not in by_name:
            raise _invalid(f"inputs[{index}] must be named one of {', '.join(by_name)}, got {shown(name)}")
        if name in contents:
            raise _invalid(f"the input {name!r} must be given once, got it twice")
        spec = by_name[name]
        shape = _shape(tensor, spec)
        size = math.prod(shape) * _SIZES[spec.datatype]
        declared = _parameters(f"inputs[{index}]", tensor).get("binary_data_size")
        if declared is None:
            contents[name] = shape, _from_json(tensor, spec, shape)
            continue
        if "data" in tensor:
            raise _invalid(f"the input {name!r} must have data or a binary_data_size, got both")
        if type(declared) is not int or declared != size:
            raise _invalid(
                f"binary_data_size of {name!r} must be {size}, as its shape {shape} says, "
                f"got {shown(declared)}"
            )
        if offset + size > len(binary):
            left = len(binary) - offset
            raise _invalid(f"the input {name!r} must have {size} bytes behind the JSON, got {left}")
        contents[name] = shape, binary[offset : offset + size]
        offset += size
    if offset != len(binary):
        raise _invalid(f"the inputs have {offset} bytes behind the JSON, got {len(binary)}")
    return contents


def _shape(tensor: Mapping[str, Any], spec: TensorSpec) -> list[int]:
    """Return the shape of a tensor. Raises ApiError unless `spec` allows datatype and shape."""
    name = spec.name
    if tensor.get("datatype") != spec.datatype:
        raise _invalid(
            f"the datatype of {name!r} must be {spec.datatype}, got {shown(tensor.get('datatype'))}"
        )
    shape = tensor.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != len(spec.shape)
        or any(type(side) is not int or side < 1 for side in shape)
        or any(rule not in (-1, side) for side, rule in zip(shape, spec.shape, strict=True))
    ):
        most = " of at least 1 image" if -1 in spec.shape else ""
        raise _invalid(f"the shape of {name!r} must be {list(spec.shape)}{most}, got {shown(shape)}")
    return shape


def _from_json(tensor: Mapping[str, Any], spec: TensorSpec, shape: list[int]) -> bytearray | bytes:
    """Return the numbers in `data`, which is flat in row-major order or nested."""
    values = _list(f"data of {spec.name!r}", tensor.get("data"))
    count = math.prod(shape)
    if values and isinstance(values[0], list):
        rows: list[Any] = [values]
        for side in shape:
            for row in rows:
                if not isinstance(row, list) or len(row) != side:
                    raise _invalid(
                        f"data of {spec.name!r} must be nested as its shape {shape} says: "
                        f"an array of {side}, got {shown(row)}"
                    )
            rows = list(chain.from_iterable(rows))
        values = rows
    elif len(values) != count:
        raise _invalid(
            f"data of {spec.name!r} must have {count} numbers, as its shape {shape} says, got {len(values)}"
        )
    if spec.datatype == "UINT8":
        return _bytes(spec.name, values)
    return _floats(spec.name, values)


def _bytes(name: str, values: list[Any]) -> bytearray:
    if not set(map(type, values)) <= {int}:  # by exact type: true and false are int to isinstance
        wrong = next(value for value in values if type(value) is not int)
        raise _invalid(f"data of {name!r} must be integers from 0 to 255, got {shown(wrong)}")
    try:
        return bytearray(values)
    except ValueError:
        wrong = next(value for value in values if not 0 <= value <= 255)
        raise _invalid(f"data of {name!r} must be integers from 0 to 255, got {shown(wrong)}") from None


def _floats(name: str, values: list[Any]) -> bytes:
    for value in values:
        if type(value) not in (int, float):
            raise _invalid(f"data of {name!r} must be numbers, got {shown(value)}")
    try:
        return struct.pack(f"<{len(values)}f", *values)
    except (OverflowError, struct.error):
        raise _invalid(f"data of {name!r} must be numbers that FP32 holds, got {shown(values)}") from None


def _threshold(name: str, content: Any) -> float:
    value: float = struct.unpack("<f", content)[0]
    if not 0 <= value <= 1:  # true for NaN, too
        raise _invalid(f"{name} must be between 0 and 1, got {value:g}")
    return value


def _wanted(question: Mapping[str, Any], specs: Sequence[TensorSpec]) -> tuple[Wanted, ...]:
    """Return the outputs that are asked for; all outputs if none is named."""
    binary = _flag("binary_data_output", _parameters("the request", question))
    asked: dict[str, bool] = {}
    names = [spec.name for spec in specs]
    for index, item in enumerate(_list("outputs", question.get("outputs") or [])):
        output = _object(f"outputs[{index}]", item)
        name = output.get("name")
        if name not in names:
            raise _invalid(f"outputs[{index}] must be named one of {', '.join(names)}, got {shown(name)}")
        parameters = _parameters(f"outputs[{index}]", output)
        if parameters.get("classification"):
            raise _invalid(f"the output {name!r} cannot be given as a classification")
        asked[name] = _flag("binary_data", parameters, binary)
    if not asked:
        return tuple(Wanted(spec, binary) for spec in specs)
    return tuple(Wanted(spec, asked[spec.name]) for spec in specs if spec.name in asked)


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    """Return tritonclient's `timeout` in seconds; the protocol has microseconds, and 0 for none."""
    value = parameters.get("timeout", 0)
    if type(value) is not int or value < 0:
        raise _invalid(f"timeout must be a whole number of microseconds, at least 0, got {shown(value)}")
    return value / 1e6 or None


def _flag(name: str, parameters: Mapping[str, Any], default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise _invalid(f"{name} must be true or false, got {shown(value)}")
    return value


def _parameters(owner: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a request or a tensor. The protocol says to ignore unknown ones."""
    parameters = _object(f"parameters of {owner}", value.get("parameters") or {})
    if "shared_memory_region" in parameters:
        raise _invalid(f"{owner} must come in the body: this service shares no memory with clients")
    return parameters


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(f"{name} must be an object, got {shown(value)}")
    return value


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _invalid(f"{name} must be an array, got {shown(value)}")
    return value


def _invalid(message: str) -> ApiError:
    return ApiError(400, "invalid_inference", message)
