"""POST /v2/models/<name>/infer: the Open Inference Protocol v2, as tritonclient's HTTP client speaks it.

The body is JSON. With the header Inference-Header-Content-Length, that many bytes are JSON, followed by the
content of each tensor with a `binary_data_size`, little-endian, in their order.
"""

import math
import re
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import torch
from fastapi import Response
from msgspec import UNSET, Meta, Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace
from torch import Tensor

from lensbox.common.detections import check_thresholds
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.serve.engine.jobs import CanvasJob, Outputs
from lensbox.serve.errors import ApiError, shortened
from lensbox.serve.http.answers import InferAnswer, InferTensor, TensorSpec, json_response
from lensbox.serve.http.service import Call
from lensbox.serve.models.served import ModelVersion
from lensbox.serve.requests.body import Body, read_json, receive

HEADER_LENGTH = "Inference-Header-Content-Length"
_INLINE = 1 << 16  # bytes; reading or writing fewer is faster than waking a thread
_MOST_NUMBERS = 1 << 24  # of an answer
_JSON_COST = 64  # numbers in binary that count as one in JSON: writing JSON holds the GIL
THRESHOLDS = ("score_threshold", "iou_threshold")
_DTYPES = {"UINT8": torch.uint8, "FP32": torch.float32}  # of inputs
Specs = dict[str, TensorSpec]
_Byte = Annotated[int, Meta(ge=0, le=255)]
# Decoders of a tensor's numbers, by datatype and depth of nesting.
_NUMBERS: dict[tuple[str, int], Decoder[Any]] = {
    ("FP32", 1): Decoder(list[float]),
    ("UINT8", 1): Decoder(list[_Byte]),
    ("UINT8", 4): Decoder(list[list[list[list[_Byte]]]]),
}
_IS_NESTED = re.compile(rb"\s*\[\s*\[")


def model_tensors(metadata: ArtifactMetadata) -> tuple[Specs, Specs]:
    """Return the inputs (all but `images` are optional) and the outputs of an artifact by name, in order."""
    canvas, outputs = metadata.canvas, list[TensorSpec]()
    inputs = [
        TensorSpec("images", "UINT8", (-1, canvas.channels, canvas.height, canvas.width)),
        *(TensorSpec(name, "FP32", (1,)) for name in THRESHOLDS),
    ]
    for name in metadata.outputs:
        described = metadata.output[name]
        # B and K are sides that vary.
        shape = tuple(side if isinstance(side, int) else -1 for side in described["shape"])
        dtype = "int32" if name == "counts" else described["dtype"]
        outputs.append(TensorSpec(name, _datatype(np.dtype(dtype)), shape))
    return {spec.name: spec for spec in inputs}, {spec.name: spec for spec in outputs}


def _datatype(dtype: "np.dtype[Any]") -> str:
    """Return the protocol's name of a type, such as FP32."""
    kinds = {"f": "FP", "i": "INT", "u": "UINT"}
    return f"{kinds[dtype.kind]}{8 * dtype.itemsize}" if dtype.kind in kinds else "BOOL"


class _Parameters(Struct):
    """The parameters of a request, an input or an output. The protocol says to ignore unknown ones.

    timeout: microseconds; 0: none. shared_memory_region: always refused.
    """

    binary_data_size: int | None = None
    binary_data: bool | None = None
    binary_data_output: bool = False
    classification: int = 0
    timeout: Annotated[int, Meta(ge=0)] = 0
    shared_memory_region: str | None = None

    def __post_init__(self) -> None:
        if self.shared_memory_region is not None:
            raise ValueError("shared_memory_region must be left out: send binary data")


class _Input(Struct):
    name: str
    datatype: str
    shape: list[Annotated[int, Meta(ge=1)]]
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


class InferRequest(NamedTuple):
    """wanted: whether to send an output as binary, by name, in order. timeout: seconds, or None."""

    id: str | None
    job: CanvasJob
    wanted: dict[str, bool]
    timeout: float | None = None


async def infer(call: Call) -> Response:
    """Detections on canvases."""
    settings, tensors = call.service.settings, model_tensors(call.model.metadata)
    body = await receive(call.request, settings.max_body_bytes, call.limit, settings)
    json_length = header_length(call.request.headers.get(HEADER_LENGTH), len(body), settings.max_json_bytes)
    if json_length <= _INLINE:
        question = read_infer_request(body, json_length, tensors)
    else:
        question = await call.in_parser(read_infer_request, body, json_length, tensors)
    if question.timeout is not None:
        call.limit.sooner(question.timeout)
    job = question.job
    check_answer_size(job.images, question.wanted, tensors[1])
    parts = job.canvases.split(call.model.largest_batch)
    results = await call.compute([replace(job, canvases=part) for part in parts])
    if sum(values.nbytes for part in results for values in part.values()) <= _INLINE:
        return infer_answer(question, call.served, results)
    return await call.in_parser(infer_answer, question, call.served, results)


def header_length(value: str | None, body_length: int, most: int) -> int:
    """Return how many bytes of a body are JSON. value: the header Inference-Header-Content-Length, or None.

    Raise ApiError: 400 unless the length is a number from 0 to `body_length`, 413 for more than `most`.
    """
    text = str(body_length) if value is None else value
    # Fewer than 20 digits, because int() raises ValueError for thousands of digits.
    length = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= length <= body_length:
        rule = f"must be a number of bytes of the body, from 0 to {body_length}"
        raise _invalid(f"{HEADER_LENGTH} {rule}, got {shortened(value)}")
    if length > most:
        message = f"JSON must have at most {most} bytes, got {length}; send large tensors as binary"
        raise ApiError(413, "body_too_large", message)
    return length


def read_infer_request(body: Body, json_length: int, tensors: tuple[Specs, Specs]) -> InferRequest:
    """Return the request in a body. Canvases of a binary tensor share the memory of a bytearray.

    json_length: from `header_length`. tensors: from `model_tensors`. Raise ApiError (400).
    """
    content = memoryview(body if isinstance(body, bytearray) else bytearray(body))
    question = read_json(content[:json_length], _QUESTION, 400, "invalid_inference")
    parameters, binary = question.parameters or _Parameters(), content[json_length:]
    given: dict[str, Tensor] = {}
    for one in question.inputs:
        spec = _named("input", one.name, tensors[0])
        if one.name in given:
            raise _invalid(f"the input {one.name!r} must be given once, got it twice")
        given[one.name], binary = _tensor(one, spec, binary)
    if binary:
        raise _invalid(f"the inputs must have no more bytes after the JSON, got {len(binary)}")
    if "images" not in given:
        raise _invalid(f"the input 'images' must be given, got {shortened(sorted(given))}")
    thresholds = {name: float(given[name]) for name in THRESHOLDS if name in given}
    try:
        check_thresholds(**thresholds)
    except ValueError as error:
        raise _invalid(str(error)) from None
    wanted = _wanted(question.outputs or [], tensors[1], parameters.binary_data_output)
    score, iou = map(thresholds.get, THRESHOLDS)
    job = CanvasJob((score, iou), given["images"])
    # Triton omits an empty id from its answer.
    return InferRequest(question.id or None, job, wanted, parameters.timeout / 1e6 or None)


def _named(kind: str, name: str, specs: Specs) -> TensorSpec:
    if name not in specs:
        raise _invalid(f"an {kind} must be named one of {', '.join(specs)}, got {shortened(name)}")
    return specs[name]


def _tensor(given: _Input, spec: TensorSpec, binary: memoryview) -> tuple[Tensor, memoryview]:
    """Return the tensor of an input, and the rest of the bytes after the JSON."""
    name, shape, text = spec.name, given.shape, bytes(given.data)
    if given.datatype != spec.datatype:
        raise _invalid(f"the datatype of {name!r} must be {spec.datatype}, got {shortened(given.datatype)}")
    if len(shape) != len(spec.shape) or any(b not in (-1, a) for a, b in zip(shape, spec.shape, strict=True)):
        raise _invalid(f"the shape of {name!r} must be {list(spec.shape)}, got {shortened(shape)}")
    declared = None if given.parameters is None else given.parameters.binary_data_size
    if (declared is None) == (not text):
        got = "neither" if declared is None else "both"
        raise _invalid(f"the input {name!r} must have data or a binary_data_size, got {got}")
    if declared is None:
        return _from_json(given, text), binary
    dtype = _DTYPES[given.datatype]
    size = math.prod(shape) * dtype.itemsize
    if declared != size:
        raise _invalid(
            f"binary_data_size of {name!r} must be {shortened(size)} for its shape, got {declared}"
        )
    if size > len(binary):
        raise _invalid(f"the input {name!r} must have {size} bytes after the JSON, got {len(binary)}")
    return torch.frombuffer(binary[:size], dtype=dtype).view(shape), binary[size:]


def _from_json(given: _Input, text: bytes) -> Tensor:
    """Return the tensor in `data`, which is flat in row-major order or nested."""
    shape, name = given.shape, f"data of {given.name!r}"
    depth = len(shape) if _IS_NESTED.match(text) else 1
    numbers = read_json(text, _NUMBERS[given.datatype, depth], 400, "invalid_inference", name)
    try:
        tensor = torch.tensor(numbers, dtype=_DTYPES[given.datatype])
        if list(tensor.shape) in ([math.prod(shape)], shape):
            return tensor.view(shape)
        got = f"the shape {list(tensor.shape)}"
    except ValueError as error:  # rows of different lengths
        got = str(error)
    raise _invalid(f"{name} must be flat, or nested with the shape {shape}, got {got}")


def _wanted(outputs: Sequence[_Output], specs: Specs, binary: bool) -> dict[str, bool]:
    """Return the requested outputs; all outputs if none is named. binary: the default of `binary_data`."""
    asked: dict[str, bool] = {} if outputs else dict.fromkeys(specs, binary)
    for output in outputs:
        name, parameters = _named("output", output.name, specs).name, output.parameters or _Parameters()
        if parameters.classification:
            raise _invalid(f"the output {name!r} cannot be returned as a classification")
        asked[name] = binary if parameters.binary_data is None else parameters.binary_data
    return {name: asked[name] for name in specs if name in asked}


def _invalid(message: str) -> ApiError:
    return ApiError(400, "invalid_inference", message)


def check_answer_size(images: int, wanted: dict[str, bool], specs: Specs) -> None:
    """Raise ApiError (413) if the answer would be too large. Ignore dimensions of unknown size."""
    numbers = sum(
        math.prod(side for side in specs[name].shape if side > 0) * (1 if binary else _JSON_COST)
        for name, binary in wanted.items()
    )
    if images * numbers > _MOST_NUMBERS:
        rule = (
            f"an answer must have at most {_MOST_NUMBERS} numbers, of which each in JSON counts {_JSON_COST}"
        )
        got = f"{_MOST_NUMBERS // numbers} images with these outputs, got {images} images"
        raise ApiError(413, "answer_too_large", f"{rule}: {got}")


def infer_answer(request: InferRequest, served: ModelVersion, found: Sequence[Outputs]) -> Response:
    """Return the answer to a request: JSON, followed by the binary outputs, if any.

    found: of all canvases, in one or several parts.
    """
    outputs: list[InferTensor] = []
    binaries: list[memoryview] = []
    for name, binary in request.wanted.items():
        values = np.concatenate([part[name] for part in found])
        # Describe the actual tensor; the metadata may give a dimension as -1.
        described = InferTensor(name, _datatype(values.dtype), values.shape)
        if binary:
            binaries.append(values.reshape(-1).view(np.uint8).data)
            described.parameters = {"binary_data_size": values.nbytes}
        else:
            described.data = values.reshape(-1).tolist()
        outputs.append(described)
    answer = InferAnswer(served.name, served.version, outputs, UNSET if request.id is None else request.id)
    if not binaries:
        return json_response(answer)
    header = msgspec.json.encode(answer)
    headers = {HEADER_LENGTH: str(len(header))}
    return Response(b"".join([header, *binaries]), headers=headers, media_type="application/octet-stream")
