"""The endpoints of protocol v2, with one model of one version."""

from typing import Any

from fastapi import APIRouter, Request, Response

from lensbox.serve.answering import result_for
from lensbox.serve.compression import accepted_encoding, check_encoding, compress, decompress
from lensbox.serve.deadline import Deadline, clients_deadline
from lensbox.serve.engine.engines import Model
from lensbox.serve.engine.jobs import CanvasJob
from lensbox.serve.errors import ApiError, shown
from lensbox.serve.request_body import receive_encoded
from lensbox.serve.schemas import BINARY, V2Error
from lensbox.serve.service import Service, service_of
from lensbox.serve.v2.infer_answer import MODEL_VERSION, InferAnswer, check_answer_size, infer_answer
from lensbox.serve.v2.infer_request import InferRequest, header_length, read_infer_request
from lensbox.serve.v2.model_tensors import model_tensors

HEADER_LENGTH = "Inference-Header-Content-Length"

_INLINE = 1 << 16  # bytes that are read or written faster than a thread takes over

_ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": V2Error} for status in (400, 404, 422, 503)}
_INFER_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": V2Error} for status in (400, 404, 408, 413, 415, 422, 503, 504)
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/octet-stream": {"schema": BINARY},
        },
    }
}

router = APIRouter(prefix="/v2", tags=["v2"])


@router.get("")
async def server_metadata(request: Request) -> dict[str, Any]:
    """What this server is, and which extensions of the protocol it has."""
    return {"name": "lensbox", "version": request.app.version, "extensions": ["binary_tensor_data"]}


@router.get("/health/live", responses={503: {"model": V2Error}})
async def server_live(request: Request) -> dict[str, bool]:
    """As /healthz."""
    service_of(request).check_alive()
    return {"live": True}


@router.get("/health/ready", responses={503: {"model": V2Error}})
async def server_ready(request: Request) -> dict[str, bool]:
    """As /readyz."""
    service_of(request).check_available()
    return {"ready": True}


@router.get("/models/{name}/ready", responses=_ERRORS)
@router.get("/models/{name}/versions/{version}/ready", responses=_ERRORS)
async def model_ready(request: Request, name: str, version: str = MODEL_VERSION) -> dict[str, Any]:
    """200 while /readyz says yes, for this model."""
    _model(request, name, version)
    service_of(request).check_available()
    return {"name": name, "ready": True}


@router.get("/models/{name}", responses=_ERRORS)
@router.get("/models/{name}/versions/{version}", responses=_ERRORS)
async def model_metadata(request: Request, name: str, version: str = MODEL_VERSION) -> dict[str, Any]:
    """Inputs and outputs of the model. All inputs but `images` may be left out."""
    tensors = model_tensors(_model(request, name, version).metadata)
    return {
        "name": name,
        "versions": [MODEL_VERSION],
        "platform": "lensbox",
        "inputs": [tensor.to_json() for tensor in tensors.inputs],
        "outputs": [tensor.to_json() for tensor in tensors.outputs],
    }


@router.post("/models/{name}/infer", responses=_INFER_ERRORS, openapi_extra=_BODY)
@router.post("/models/{name}/versions/{version}/infer", responses=_INFER_ERRORS, openapi_extra=_BODY)
async def infer(request: Request, name: str, version: str = MODEL_VERSION) -> Response:
    """What the model finds on canvases."""
    service = service_of(request)
    artifact = _model(request, name, version)
    with service.admitted(clients_deadline(request)):
        question, deadline = await _read(request, service, artifact)
        check_answer_size(len(question.canvases), question.wanted)
        job = CanvasJob(question.canvases, question.score_threshold, question.iou_threshold)
        found = await result_for(request, service.instance.submit(job, deadline.at), deadline)
        numbers = found.boxes.numel() + sum(values.numel() for values in found.extras.values())

        def write() -> Response:
            answer = infer_answer(question, artifact.metadata.name, found)
            return _response(answer, request.headers.get("accept-encoding", ""))

        if 4 * numbers <= _INLINE:
            return write()
        return await result_for(request, service.json_parser.submit(write), deadline)


async def _read(request: Request, service: Service, model: Model) -> tuple[InferRequest, Deadline]:
    """What a client asks for, and until when."""
    settings = service.settings
    tensors = model_tensors(model.metadata)
    encoding = check_encoding(request.headers.get("content-encoding", "identity"))
    body, deadline = await receive_encoded(request, settings.max_body_bytes, settings)
    service.instance.check_room()
    declared = request.headers.get(HEADER_LENGTH)

    def read() -> InferRequest:
        content = decompress(body, encoding, settings.max_body_bytes)
        json_length = header_length(declared, len(content), settings.max_json_bytes)
        return read_infer_request(content, json_length, tensors)

    # Binary tensors are not looked at, so the size of the JSON alone decides.
    if encoding == "identity" and header_length(declared, len(body), settings.max_json_bytes) <= _INLINE:
        return read(), deadline
    return await result_for(request, service.json_parser.submit(read), deadline), deadline


def _response(answer: InferAnswer, accept_encoding: str) -> Response:
    headers = {}
    if answer.header_length is not None:
        headers[HEADER_LENGTH] = str(answer.header_length)
    encoding = accepted_encoding(accept_encoding, answer.size)
    if encoding == "identity":
        body = b"".join(answer.parts)
    else:
        body = compress(answer.parts, encoding)
        headers["Content-Encoding"] = encoding
    media_type = "application/json" if answer.header_length is None else "application/octet-stream"
    return Response(body, headers=headers, media_type=media_type)


def _model(request: Request, name: str, version: str) -> Model:
    """The artifact, if that is its name. Raises NotReadyError, ApiError (404)."""
    artifact = service_of(request).instance.ready_artifact()
    known = artifact.metadata.name
    if (name, version) != (known, MODEL_VERSION):
        message = f"the model must be {known!r} of version '1', got {shown(name)} of version {shown(version)}"
        raise ApiError(404, "unknown_model", message)
    return artifact
