"""POST /v1/loss."""

import math
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from torch import Tensor

from lensbox.runtime.box_loss import BoxPairs, LossUnsupportedError
from lensbox.runtime.detection import numbers_to_json
from lensbox.serve.answering import result_for
from lensbox.serve.box_json import read_loss_request
from lensbox.serve.deadline import clients_deadline
from lensbox.serve.engine.engines import Model
from lensbox.serve.engine.jobs import LossJob
from lensbox.serve.errors import ApiError
from lensbox.serve.following import followed
from lensbox.serve.request_body import receive
from lensbox.serve.schemas import LossAnswer, LossQuestion, NoParameters, inlined, problems
from lensbox.serve.service import service_of

router = APIRouter(tags=["loss"])

_SCHEMA = inlined(LossQuestion)
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}}


@router.post(
    "/v1/loss",
    response_model=LossAnswer,
    responses=problems(400, 408, 413, 415, 422, 503, 504),
    openapi_extra=_BODY,
)
async def loss(request: Request, _: Annotated[NoParameters, Query()]) -> Response:
    """The model's loss of predicted boxes against target boxes, the GIoU loss unless it brings its own.

    The body is JSON, whatever Content-Type says.
    """
    service = service_of(request)
    settings, instance = service.settings, service.instance
    if not has_loss(instance.ready_artifact()):
        raise ApiError(
            422,
            "no_loss",
            "the model must have a loss, and this file has none: serve the TorchScript artifact",
        )
    with service.admitted(clients_deadline(request)):
        body, deadline = await receive(request, settings.max_json_bytes, settings)
        parsing = service.json_parser.submit(read_loss_request, body, settings.max_boxes)
        computing = followed(
            parsing,
            lambda asked: instance.submit(LossJob(*asked, most_slots=settings.max_boxes), deadline.at),
        )
        asked, losses = await result_for(request, computing, deadline)
        if isinstance(losses, LossUnsupportedError):
            raise ApiError(422, "unsupported_loss", str(losses))
        slots = int((asked.pairs.targets[:, 3] != 0).sum())
        answer: dict[str, Any] = {"loss": finite_or_none(losses.loss), "slots": slots}
        if losses.per_image is not None:
            answer["per_image"] = [finite_or_none(value) for value in losses.per_image]
        if losses.gradient is None:
            return JSONResponse(answer)
        gradient = losses.gradient

        def write() -> Response:
            return JSONResponse({**answer, "gradient": _nested(gradient, asked.pairs)})

        return await result_for(request, service.json_parser.submit(write), deadline)


def finite_or_none(value: float | None) -> float | None:
    """A detector's own loss may be any number, and JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def has_loss(model: Model) -> bool:
    """Whether there is a loss to ask for: an ONNX file leaves a detector's own behind."""
    return "loss" in model.metadata.methods


def _nested(gradient: Tensor, pairs: BoxPairs) -> list[Any]:
    """As the predictions were: [N][4], or images with their boxes."""
    if pairs.sizes is None:
        return numbers_to_json(gradient)
    return [numbers_to_json(image) for image in gradient.split(list(pairs.sizes))]
