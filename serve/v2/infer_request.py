"""From the body of an inference request to canvases, thresholds and the outputs that are wanted.

The body is JSON, or, with the header Inference-Header-Content-Length, so many bytes of JSON and behind them
the content of each tensor with a `binary_data_size`, little-endian, in their order.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lensbox.serve.errors import ApiError, shown
from lensbox.serve.json_body import parse_json
from lensbox.serve.v2.model_tensors import THRESHOLDS, ModelTensors, TensorSpec

_SIZES = {"UINT8": 1, "FP32": 4}  # bytes of a number
# Far more than all inputs and outputs need; what else the parser would spend its time on is refused unparsed.
_MOST_ARRAYS, _MOST_OBJECTS, _MOST_QUOTES = 64, 512, 4096


class Wanted(NamedTuple):
    """An output that is wanted, and whether in binary."""

    output: TensorSpec
    binary: bool


class InferRequest(NamedTuple):
    """canvases: uint8 [n, c, h, w], n at least 1; a threshold is None if not given; wanted: in order."""

    id: str | None
    canvases: Tensor
    score_threshold: float | None
    iou_threshold: float | None
    wanted: tuple[Wanted, ...]


def header_length(value: str | None, body_length: int, most: int) -> int:
    """How many bytes of a body are JSON. value: the header Inference-Header-Content-Length, None if missing.

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


def read_infer_request(body: bytearray, json_length: int, tensors: ModelTensors) -> InferRequest:
    """What a body asks for. The canvases of a binary tensor are the body's own memory.

    json_length: as `header_length` gives it. Raises ApiError (400) that names what is wrong.
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
    )


def _check_size(header: bytes, row: int) -> None:
    """Refuses what has more arrays, objects or strings than a request can need. row: numbers in a pixel row.

    The parser stops every other thread, and is slowest with empty arrays and objects.
    """
    # The pixels are rows in planes in images: three kinds of arrays, each of a row's numbers at least.
    most_arrays = _MOST_ARRAYS + 3 * (header.count(b",") + 1) // row
    for what, sign, most in (
        ("arrays", b"]", most_arrays),
        ("objects", b"{", _MOST_OBJECTS),
        ("quotes", b'"', _MOST_QUOTES),
    ):
        if (count := header.count(sign)) > most:
            raise _invalid(f"the JSON of this request can have at most {most} {what}, got {count}")


def _inputs(
    question: Mapping[str, Any], specs: Sequence[TensorSpec], binary: memoryview
) -> dict[str, tuple[list[int], Any]]:
    """Shape and content, bytes of a little-endian tensor, of each input that was sent."""
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
    """The shape of a tensor with the right datatype, as `spec` allows it."""
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
    """The numbers in `data`, flat in row-major order or nested as the shape says."""
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
    """The outputs asked for, all if none are; binary where the output, or else the request, says so."""
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


def _flag(name: str, parameters: Mapping[str, Any], default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise _invalid(f"{name} must be true or false, got {shown(value)}")
    return value


def _parameters(owner: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Those of a request or a tensor. What is not known is ignored, as the protocol says."""
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
