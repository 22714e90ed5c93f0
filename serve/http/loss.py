"""POST /v1/loss."""

import math
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from torch import Tensor

from lensbox.runtime.box_loss import BoxPairs, LossUnsupportedError
from lensbox.runtime.detection import numbers_to_json
from lensbox.serve.engine.jobs import LossJob
from lensbox.serve.http.openapi import LossAnswer, body, problems
from lensbox.serve.http.service import deadline_of_request, service_of
from lensbox.serve.requests.body import content_encoding, receive
from lensbox.serve.requests.boxes import LossQuestion, read_loss_request
from lensbox.serve.requests.detect_request import NoParameters, query_parameters
from lensbox.serve.requests.errors import ApiError
from lensbox.serve.requests.futures import chained, result_for

router = APIRouter(tags=["loss"])


@router.post(
    "/v1/loss",
    response_model=LossAnswer,
    responses=problems(400, 408, 413, 415, 422, 503, 504),
    openapi_extra=body({"application/json": LossQuestion.model_json_schema()}),
)
async def loss(request: Request) -> Response:
    """The loss of predicted boxes against target boxes: the detector's own loss, or else the GIoU loss.

    The body is JSON, whatever Content-Type says.
    """
    service, deadline = service_of(request), deadline_of_request(request)
    settings, engine = service.settings, service.engine
    query_parameters(request, NoParameters)
    if "loss" not in engine.ready_artifact().metadata.methods:
        message = "the artifact must have a loss, got one without; serve a TorchScript artifact"
        raise ApiError(422, "no_loss", message)
    content_encoding(request, ("identity",))
    content, deadline = await receive(request, settings.max_json_bytes, settings, deadline)
    parsing = service.json_parser.submit(read_loss_request, bytes(content), settings.max_boxes)
    computing = chained(
        parsing, lambda asked: engine.submit(LossJob(*asked, most_slots=settings.max_boxes), deadline.at)
    )
    asked, losses = await result_for(request, computing, deadline)
    if isinstance(losses, LossUnsupportedError):
        raise ApiError(422, "unsupported_loss", str(losses))
    slots = int((asked.pairs.targets[:, 3] != 0).sum())
    answer: dict[str, Any] = {"loss": _finite(losses.loss), "slots": slots}
    if losses.per_image is not None:
        answer["per_image"] = [_finite(value) for value in losses.per_image]
    if losses.gradient is None:
        return JSONResponse(answer)
    gradient = losses.gradient

    def write() -> Response:
        return JSONResponse({**answer, "gradient": _nested(gradient, asked.pairs)})

    return await result_for(request, service.json_parser.submit(write), deadline)


def _finite(value: float) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def _nested(gradient: Tensor, pairs: BoxPairs) -> list[Any]:
    """Return the gradient [N, 4] nested as the predictions were: [N][4], or images with their boxes."""
    if pairs.sizes is None:
        return numbers_to_json(gradient)
    return [numbers_to_json(image) for image in gradient.split(list(pairs.sizes))]
