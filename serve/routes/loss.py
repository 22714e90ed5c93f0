"""POST /v1/loss."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from lensbox.serve.answering import result_for
from lensbox.serve.box_json import loss_tensors
from lensbox.serve.engine.jobs import LossJob
from lensbox.serve.errors import ApiError
from lensbox.serve.following import followed
from lensbox.serve.request_body import receive
from lensbox.serve.schemas import LossAnswer, LossQuestion, NoParameters, problems
from lensbox.serve.service import service_of

router = APIRouter(tags=["loss"])

_SCHEMA = LossQuestion.model_json_schema()
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}}


@router.post(
    "/v1/loss",
    responses=problems(400, 408, 413, 415, 422, 503, 504),
    openapi_extra=_BODY,
)
async def loss(request: Request, _: Annotated[NoParameters, Query()]) -> LossAnswer:
    """The GIoU loss of predicted boxes against target boxes. The body is JSON, whatever Content-Type says."""
    service = service_of(request)
    settings, instance = service.settings, service.instance
    if "loss" not in instance.ready_artifact().metadata.methods:
        raise ApiError(
            422,
            "no_loss",
            "the model must have a loss, and this file has none: serve the TorchScript artifact",
        )
    with service.admitted():
        body, deadline = await receive(request, settings.max_json_bytes, settings)
        parsing = service.json_parser.submit(loss_tensors, body, settings.max_boxes)
        computing = followed(parsing, lambda boxes: instance.submit(LossJob(*boxes), deadline.at))
        boxes, value = await result_for(request, computing, deadline)
    return LossAnswer(loss=value, slots=int((boxes[1][..., 3] != 0).sum()))
