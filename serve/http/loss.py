"""POST /v1/loss."""

import math
from concurrent.futures import Future
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from torch import Tensor

from lensbox.runtime.detect.detection import numbers_to_json
from lensbox.serve.engine.jobs import Loss, LossJob
from lensbox.serve.errors import ApiError
from lensbox.serve.http.service import deadline_of_request, service_of
from lensbox.serve.requests.body import content_encoding, receive
from lensbox.serve.requests.boxes import LossQuestion, LossRequest, read_loss_request
from lensbox.serve.requests.detect_request import NoParameters, query_parameters
from lensbox.serve.requests.futures import chained, result_for

BODIES = {"application/json": LossQuestion.model_json_schema()}


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

    def compute(asked: LossRequest) -> "Future[Loss]":
        return engine.submit(LossJob(asked.predictions, asked.targets, asked.gradient), deadline.at)

    asked, found = await result_for(request, chained(parsing, compute), deadline)
    slots = int((asked.targets[..., 3] != 0).sum())
    answer = {"loss": found.value if math.isfinite(found.value) else None, "slots": slots}
    if not asked.gradient:
        return JSONResponse(answer)
    gradient = found.gradient
    if gradient is None:
        message = "gradient must be left out: the detector's own loss has no gradient"
        raise ApiError(422, "unsupported_loss", message)

    def write() -> Response:
        return JSONResponse({**answer, "gradient": _nested(gradient, asked.sizes)})

    return await result_for(request, service.json_parser.submit(write), deadline)


def _nested(gradient: Tensor, sizes: tuple[int, ...] | None) -> list[Any]:
    """Return the gradient nested as the predictions were."""
    if sizes is None:
        return numbers_to_json(gradient)
    return [numbers_to_json(image[:size]) for image, size in zip(gradient, sizes, strict=True)]
