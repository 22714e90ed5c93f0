"""The Open Inference Protocol v2 with one model of one version, as tritonclient's HTTP client speaks it."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from fastapi import Request, Response
from numpy.typing import NDArray
from torch import Tensor

from lensbox.serve.engine.engines import Model
from lensbox.serve.engine.jobs import CanvasDetections, CanvasJob
from lensbox.serve.errors import ApiError, shown
from lensbox.serve.http.openapi import BINARY
from lensbox.serve.http.service import Service, deadline_of_request, service_of
from lensbox.serve.requests.body import content_encoding, decompress, receive
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
MODEL_VERSION = "1"  # an artifact has one version
_INLINE = 1 << 16  # bytes; reading or writing fewer is faster than waking a thread
_MOST_NUMBERS = {True: 1 << 24, False: 1 << 20}  # in binary answers, and in JSON (up to 25 bytes each)
_CHUNK = 4096  # numbers converted to text per call, which holds the GIL

BODIES = {"application/json": {"type": "object"}, "application/octet-stream": BINARY}


async def server_metadata(request: Request) -> Any:
    """Name, version and extensions of this server."""
    extensions = ["binary_tensor_data", "model_configuration", "model_repository", "statistics"]
    return {"name": "lensbox", "version": request.app.version, "extensions": extensions}


async def server_live(request: Request) -> Any:
    """The same as /livez."""
    service_of(request).check_alive()
    return {"live": True}


async def server_ready(request: Request) -> Any:
    """The same as /readyz."""
    service_of(request).check_available()
    return {"ready": True}


async def repository_index(request: Request) -> Any:
    """The one model of this server."""
    name = service_of(request).engine.ready_artifact().metadata.name
    return [{"name": name, "version": MODEL_VERSION, "state": "READY", "reason": ""}]


async def model_ready(request: Request) -> Any:
    """200 while /readyz answers 200."""
    model = _model(request)
    service_of(request).check_available()
    return {"name": model.metadata.name, "ready": True}


async def model_config(request: Request) -> Any:
    """Inputs, outputs and largest batch, in the form of Triton's model configuration."""
    model = _model(request)
    tensors = model_tensors(model.metadata)
    settings = service_of(request).settings

    def described(spec: Any) -> dict[str, Any]:
        return {"name": spec.name, "data_type": f"TYPE_{spec.datatype}", "dims": list(spec.shape)}

    return {
        "name": model.metadata.name,
        "platform": "lensbox",
        "backend": "lensbox",
        "max_batch_size": 0,  # 0: the shapes below include the batch dimension
        "input": [{**described(spec), "optional": spec.name != "images"} for spec in tensors.inputs],
        "output": [described(spec) for spec in tensors.outputs],
        "parameters": {"queue_size": {"string_value": str(settings.places)}},
    }


async def model_statistics(request: Request) -> Any:
    """The number of inference requests so far, by outcome. /metrics has latencies and batches."""
    model = _model(request) if "name" in request.path_params else service_of(request).engine.ready_artifact()
    counts = service_of(request).inferences
    statistics = {
        "name": model.metadata.name,
        "version": MODEL_VERSION,
        "inference_count": counts[True],
        "execution_count": counts[True],
        "inference_stats": {"success": {"count": counts[True]}, "fail": {"count": counts[False]}},
    }
    return {"model_stats": [statistics]}


async def model_metadata(request: Request) -> Any:
    """Inputs and outputs of the model. All inputs but `images` may be left out."""
    metadata = _model(request).metadata
    tensors = model_tensors(metadata)
    return {
        "name": metadata.name,
        "versions": [MODEL_VERSION],
        "platform": "lensbox",
        "inputs": [tensor.to_json() for tensor in tensors.inputs],
        "outputs": [tensor.to_json() for tensor in tensors.outputs],
    }


async def infer(request: Request) -> Response:
    """Detections on canvases."""
    service = service_of(request)
    model = _model(request)
    question, deadline = await _read(request, service, model)
    check_answer_size(len(question.canvases), question.wanted)
    job = CanvasJob(question.canvases, question.score_threshold, question.iou_threshold)
    try:
        found = await result_for(request, service.engine.submit(job, deadline.at), deadline)
    except BaseException:
        service.inferences[False] += 1
        raise
    service.inferences[True] += 1
    numbers = found.boxes.numel() + sum(values.numel() for values in found.extras.values())

    def write() -> Response:
        return infer_answer(question, model.metadata.name, found)

    if 4 * numbers <= _INLINE:
        return write()
    return await result_for(request, service.json_parser.submit(write), deadline)


async def _read(request: Request, service: Service, model: Model) -> tuple[InferRequest, Deadline]:
    """Read and parse a request. Return the request and its deadline."""
    settings = service.settings
    tensors = model_tensors(model.metadata)
    encoding = content_encoding(request, ("identity", "gzip", "deflate"))
    content, deadline = await receive(
        request, settings.max_body_bytes, settings, deadline_of_request(request)
    )
    declared = request.headers.get(HEADER_LENGTH)

    def read() -> InferRequest:
        plain = decompress(content, encoding, settings.max_body_bytes)
        json_length = header_length(declared, len(plain), settings.max_json_bytes)
        return read_infer_request(bytearray(plain), json_length, tensors)

    # Reading does not touch binary tensors, so only the size of the JSON matters.
    if encoding == "identity" and header_length(declared, len(content), settings.max_json_bytes) <= _INLINE:
        question = read()
    else:
        question = await result_for(request, service.json_parser.submit(read), deadline)
    return question, deadline if question.timeout is None else deadline.or_sooner(question.timeout)


def _model(request: Request) -> Model:
    """Return the model that the path names. Raises NotReadyError, ApiError (404)."""
    model: Model = service_of(request).engine.ready_artifact()
    name, known = request.path_params["name"], model.metadata.name
    version = request.path_params.get("version", MODEL_VERSION)
    if (name, version) != (known, MODEL_VERSION):
        message = f"the model must be {known!r}, version '1'; got {shown(name)}, version {shown(version)}"
        raise ApiError(404, "unknown_model", message)
    return model


def check_answer_size(images: int, wanted: Sequence[Wanted]) -> None:
    """Raise ApiError (413) if the answer would be too large. Ignore dimensions of unknown size."""
    for binary, most in _MOST_NUMBERS.items():
        numbers = sum(
            math.prod(side for side in wish.output.shape if side > 0)
            for wish in wanted
            if wish.binary is binary
        )
        if images * numbers > most:
            form = "binary" if binary else "JSON"
            raise ApiError(
                413,
                "answer_too_large",
                f"an answer must have at most {most} numbers as {form}: {most // numbers} images with these "
                f"outputs, got {images} images",
            )


def infer_answer(request: InferRequest, model_name: str, found: CanvasDetections) -> Response:
    """Return the answer to a request: JSON, followed by the binary outputs, if any."""
    outputs = _outputs(found)
    texts: list[str] = []
    binaries: list[bytes | memoryview] = []
    for output, binary in request.wanted:
        values = outputs[output.name].contiguous()
        # Describe the actual tensor; the metadata may give a dimension as -1.
        described = f'"name":{json.dumps(output.name)},"datatype":"{DATATYPES[values.dtype]}"'
        described += f',"shape":{json.dumps(list(values.shape), separators=(",", ":"))}'
        if binary:
            content = values.view(-1).numpy().view(np.uint8).data
            described += f',"parameters":{{"binary_data_size":{len(content)}}}'
            binaries.append(content)
        else:
            described += f',"data":[{",".join(_texts(values.view(-1).numpy()))}]'
        texts.append(f"{{{described}}}")
    start = {"model_name": model_name, "model_version": MODEL_VERSION}
    if request.id is not None:
        start = {"id": request.id, **start}
    header = f'{json.dumps(start, separators=(",", ":"))[:-1]},"outputs":[{",".join(texts)}]}}'.encode()
    if not binaries:
        return Response(header, media_type="application/json")
    headers = {HEADER_LENGTH: str(len(header))}
    return Response(b"".join([header, *binaries]), headers=headers, media_type="application/octet-stream")


def _outputs(found: CanvasDetections) -> dict[str, Tensor]:
    """Return the outputs by name. Counts are converted to int32."""
    labels = {} if found.labels is None else {"labels": found.labels}
    counts = found.counts.int()
    return {"boxes": found.boxes, "scores": found.scores, "counts": counts, **labels, **found.extras}


def _texts(values: NDArray[np.generic]) -> Iterator[str]:
    """Yield numbers as JSON in chunks; null stands for NaN and infinity."""
    for start in range(0, len(values), _CHUNK):
        piece = values[start : start + _CHUNK]
        numbers = piece.tolist()
        if not np.isfinite(piece).all():
            numbers = [number if math.isfinite(number) else None for number in numbers]
        yield json.dumps(numbers, separators=(",", ":"))[1:-1]
