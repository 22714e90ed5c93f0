"""POST /v1/evaluate."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from lensbox.runtime.box_loss import Losses
from lensbox.serve.answering import outcome_of, result_for, settled
from lensbox.serve.deadline import clients_deadline
from lensbox.serve.detecting import Finder, Found
from lensbox.serve.engine.jobs import LossJob
from lensbox.serve.errors import ApiError, problem
from lensbox.serve.evaluation import Figures, figures
from lensbox.serve.image_list import has_image_list
from lensbox.serve.labelled_images import read_labelled_images
from lensbox.serve.query import check_each_once
from lensbox.serve.request_body import receive
from lensbox.serve.routes.loss import finite_or_none, has_loss
from lensbox.serve.schemas import (
    BINARY,
    EvaluateAnswer,
    EvaluateParameters,
    EvaluateQuestion,
    inlined,
    problems,
)
from lensbox.serve.service import service_of
from lensbox.train.average_precision import MATCH_IOU, SCORE_THRESHOLD, ImageLabels

router = APIRouter(tags=["evaluate"], dependencies=[Depends(check_each_once)])

_FORM = {
    "type": "object",
    "properties": {
        "image": {"type": "array", "items": BINARY, "minItems": 1},
        "targets": {"type": "string", "description": "JSON: of each image the list of its boxes"},
    },
    "required": ["image", "targets"],
    "additionalProperties": False,
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM},
            "application/json": {"schema": inlined(EvaluateQuestion)},
        },
    }
}


@router.post(
    "/v1/evaluate",
    response_model=EvaluateAnswer,
    responses=problems(400, 408, 413, 415, 422, 503, 504),
    openapi_extra=_BODY,
)
async def evaluate(request: Request, parameters: Annotated[EvaluateParameters, Query()]) -> Response:
    """How well the model does on images whose boxes are given: hits, false alarms, misses, precision, loss.

    The body is a multipart form with the field `image` once for each image and `targets`, or JSON. An image
    that cannot be read has an `error` in its place, and counts for nothing.
    """
    service = service_of(request)
    settings, instance = service.settings, service.instance
    service.check_ready()
    metadata = instance.ready_artifact().metadata
    content_type = request.headers.get("content-type", "")
    with service.admitted(clients_deadline(request)):
        body, deadline = await receive(request, settings.max_body_bytes, settings)
        if not has_image_list(content_type):
            message = f"Content-Type must be multipart/form-data or application/json, got {content_type!r}"
            raise ApiError(415, "unsupported_body", message)
        instance.check_room(deadline.at)
        size = len(body)
        reading = service.json_parser.submit(
            read_labelled_images, body, content_type, parameters, settings.max_images, metadata.classes
        )
        del body  # of which there are copies now
        labelled = await result_for(request, reading, deadline)
        asked = labelled.parameters
        threshold = metadata.score_threshold if asked.score_threshold is None else asked.score_threshold
        match_iou = MATCH_IOU if asked.match_iou is None else asked.match_iou
        least = asked.model_copy(update={"score_threshold": min(threshold, SCORE_THRESHOLD)})

        async def steps() -> dict[str, Any]:
            found = await Finder(service, least, deadline).find_each(labelled.sources, size)
            readable = [index for index, one in enumerate(found) if isinstance(one, Found)]
            of_readable = [one for one in found if isinstance(one, Found)]
            wanted: list[ImageLabels] = [labelled.labels[index] for index in readable]
            matching = service.decoders.run(
                lambda until: figures(of_readable, wanted, metadata.classes, threshold, match_iou),
                deadline.at,
            )
            matched = await settled(matching)
            losses = None
            if has_loss(instance.ready_artifact()) and len(matched.hits.predictions):
                job = LossJob(matched.hits, True, False, settings.max_boxes)
                losses = await settled(instance.submit(job, deadline.at))
            return _answer(found, matched, losses if isinstance(losses, Losses) else None)

        return JSONResponse(await outcome_of(request, steps(), deadline))


def _answer(found: list[Found | ApiError], matched: Figures, losses: Losses | None) -> dict[str, Any]:
    alone = iter(losses.per_image if losses and losses.per_image else [None] * len(matched.images))
    of_readable = iter(matched.images)
    images: list[dict[str, Any]] = []
    for one in found:
        if isinstance(one, ApiError):
            images.append({"error": problem(one.status, one.code, one.message)})
            continue
        counts, loss = next(of_readable), next(alone)
        loss = finite_or_none(loss) if counts["hits"] else None
        images.append({"width": one.width, "height": one.height, **counts, "loss": loss})
    loss = finite_or_none(losses.loss) if losses else None
    return {"images": images, "evaluated": len(matched.images), **matched.total, "loss": loss}
