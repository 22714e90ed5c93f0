"""The Open Inference Protocol v2, as tritonclient's HTTP client speaks it."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from fastapi import Request, Response
from msgspec import UNSET

from lensbox.serve.engine.jobs import CanvasJob, Outputs
from lensbox.serve.errors import ApiError
from lensbox.serve.http.answers import InferAnswer, InferTensor, ModelMetadata, json_response
from lensbox.serve.http.service import Service, model_of, service_of
from lensbox.serve.models.served import Served
from lensbox.serve.requests.body import receive
from lensbox.serve.requests.futures import Deadline, result_for
from lensbox.serve.requests.v2_request import (
    DATATYPES,
    InferRequest,
    Wanted,
    header_length,
    model_tensors,
    read_infer_request,
)

HEADER_LENGTH = "Inference-Header-Content-Length"
_INLINE = 1 << 16  # bytes; reading or writing fewer is faster than waking a thread
# In binary answers, and in JSON (up to 25 bytes each; writing JSON holds the GIL for 20 ms).
_MOST_NUMBERS = {True: 1 << 24, False: 1 << 18}


async def server_metadata(request: Request) -> Any:
    """Name, version and extensions of this server."""
    extensions = ["binary_tensor_data", "model_repository"]
    return {"name": "lensbox", "version": request.app.version, "extensions": extensions}


async def server_live(request: Request) -> Any:
    """The same as /livez."""
    service_of(request).check_alive()
    return {"live": True}


async def server_ready(request: Request) -> Any:
    """The same as /readyz."""
    service_of(request).check_available()
    return {"ready": True}


async def model_ready(request: Request) -> Any:
    """200 while /readyz answers 200."""
    served = _loaded(request)
    service_of(request).check_available()
    return {"name": served.name, "ready": True}


async def model_metadata(request: Request) -> Any:
    """Inputs and outputs of the model. All inputs but `images` may be left out."""
    served = _loaded(request)
    tensors = model_tensors(served.model.metadata)
    return ModelMetadata(served.name, [served.version], "lensbox", tensors.inputs, tensors.outputs)


async def infer(request: Request) -> Any:
    """Detections on canvases."""
    service, served = service_of(request), model_of(request)
    question, deadline = await _read(request, service, served)
    check_answer_size(len(question.canvases), question.wanted)
    job = CanvasJob(question.canvases, question.score_threshold, question.iou_threshold)
    found = await result_for(request, served.engine.submit(job, deadline.at), deadline)
    if sum(values.nbytes for values in found.values()) <= _INLINE:
        return infer_answer(question, served, found)
    writing = service.json_parser.submit(infer_answer, question, served, found)
    return await result_for(request, writing, deadline)


async def _read(request: Request, service: Service, served: Served) -> tuple[InferRequest, Deadline]:
    """Read and parse a request. Return the request and its deadline."""
    settings = service.settings
    tensors = model_tensors(served.model.metadata)
    content, deadline = await receive(request, settings.max_body_bytes, settings)
    json_length = header_length(request.headers.get(HEADER_LENGTH), len(content), settings.max_json_bytes)
    if json_length <= _INLINE:  # binary tensors are not touched
        question = read_infer_request(content, json_length, tensors)
    else:
        reading = service.json_parser.submit(read_infer_request, content, json_length, tensors)
        question = await result_for(request, reading, deadline)
    return question, deadline if question.timeout is None else deadline.or_sooner(question.timeout)


def _loaded(request: Request) -> Served:
    """Return the model that the path names. Raises NotReadyError, ApiError (404)."""
    served = model_of(request)
    served.engine.ready_artifact()
    return served


def check_answer_size(images: int, wanted: Sequence[Wanted]) -> None:
    """Raise ApiError (413) if the answer would be too large. Ignore dimensions of unknown size."""
    for binary, most in _MOST_NUMBERS.items():
        shapes = [wish.output.shape for wish in wanted if wish.binary is binary]
        numbers = sum(math.prod(side for side in shape if side > 0) for shape in shapes)
        if images * numbers > most:
            rule = f"an answer must have at most {most} numbers as {'binary' if binary else 'JSON'}"
            got = f"{most // numbers} images with these outputs, got {images} images"
            raise ApiError(413, "answer_too_large", f"{rule}: {got}")


def infer_answer(request: InferRequest, served: Served, found: Outputs) -> Response:
    """Return the answer to a request: JSON, followed by the binary outputs, if any."""
    outputs: list[InferTensor] = []
    binaries: list[memoryview] = []
    for output, binary in request.wanted:
        tensor = found[output.name].contiguous()
        values = tensor.numpy()
        # Describe the actual tensor; the metadata may give a dimension as -1.
        described = InferTensor(output.name, DATATYPES[tensor.dtype], values.shape)
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
