"""POST /v1/loss, with boxes in JSON."""

import re
from itertools import chain
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import torch
from msgspec import Meta, Struct
from msgspec.json import Decoder
from torch import Tensor

from lensbox.serve.engine.jobs import LossJob
from lensbox.serve.errors import ApiError, shortened
from lensbox.serve.http.answers import LossAnswer
from lensbox.serve.http.service import Call
from lensbox.serve.requests.body import Body, NoParameters, query_parameters, read_json, receive

# read_loss_request checks the lengths: msgspec's message would leave out the length received.
Box = Annotated[list[float], Meta(extra_json_schema={"minItems": 4, "maxItems": 4})]
Boxes = list[Box]
Given = TypeVar("Given")


class _Question(Struct, Generic[Given], forbid_unknown_fields=True):
    predictions: Given
    targets: Given
    gradient: bool = False


class LossOfBoxes(_Question[Boxes]):
    """The body of /v1/loss for boxes, xyxy in pixels.

    targets: target i belongs to prediction i; y2 = 0, or fewer targets, mark predictions without a target.
    gradient: true to return d loss / d predictions, too.
    """


class LossOfImages(_Question[list[Boxes]]):
    """The body of /v1/loss for the boxes of each image, of any number."""


_OF_BOXES, _OF_IMAGES = Decoder(LossOfBoxes), Decoder(LossOfImages)
_IS_OF_IMAGES = re.compile(rb'"predictions"\s*:\s*\[\s*\[\s*[\[\]]')
Sizes = tuple[int, ...] | None


async def loss(call: Call) -> LossAnswer:
    """The loss of predicted boxes against target boxes: the detector's own loss, or else the GIoU loss.

    The body is JSON, whatever Content-Type says.
    """
    query_parameters(call.request.scope["query_string"], NoParameters)
    if "loss" not in call.model.metadata.methods:
        message = "the artifact must have a loss, got one without; serve a TorchScript artifact"
        raise ApiError(422, "no_loss", message)
    settings = call.service.settings
    body = await receive(call.request, settings.max_json_bytes, call.limit, settings)
    job, sizes = await call.in_parser(read_loss_request, body, settings.max_boxes)
    found = await call.served.engine.submit(job, call.limit.at)
    answer = LossAnswer(found.value, int((job.targets[..., 3] != 0).sum()))
    if not job.gradient:
        return answer
    if found.gradient is None:
        message = "gradient must be left out: the detector's own loss has no gradient"
        raise ApiError(422, "unsupported_loss", message)
    images = found.gradient.tolist()
    answer.gradient = images if sizes is None else [one[:n] for one, n in zip(images, sizes, strict=True)]
    return answer


def read_loss_request(body: Body, max_boxes: int) -> tuple[LossJob, Sizes]:
    """Return the job of a body, and the number of predictions of each image; None without images.

    The job's boxes are float64 [N, 4], or [B, N, 4] with zeros after the boxes of each image.
    Raise ApiError: 413 for more than `max_boxes` boxes after padding; 422 for any other invalid body.
    """
    is_nested = _IS_OF_IMAGES.search(body) is not None
    decoder: Decoder[Any] = _OF_IMAGES if is_nested else _OF_BOXES
    question = read_json(body, decoder, 422, "invalid_boxes")
    predictions, targets = question.predictions, question.targets
    if not is_nested:
        predictions, targets = [predictions], [targets]
    for name, images in (("predictions", predictions), ("targets", targets)):
        wrong = next((box for box in chain.from_iterable(images) if len(box) != 4), None)
        if wrong is not None:
            raise _invalid(f"a box of {name} has 4 numbers, got {len(wrong)}: {shortened(wrong)}")
    if len(predictions) != len(targets):
        rule = "predictions and targets must have the same number of images"
        raise _invalid(f"{rule}, got {len(predictions)} and {len(targets)}")
    sizes = tuple(map(len, predictions))
    for index, (have, need) in enumerate(zip(sizes, map(len, targets), strict=True)):
        if need > have:
            rule = f"must have at most as many boxes as its predictions, which are {have}"
            raise _invalid(f"targets of image {index} {rule}, got {need}")
    if (slots := len(sizes) * max(1, *sizes)) > max_boxes:
        rule = f"predictions must have at most {max_boxes} boxes, padded to the largest image"
        raise ApiError(413, "too_many_boxes", f"{rule}, got {slots}")
    ours, theirs = (_padded(images, max(sizes)) for images in (predictions, targets))
    if is_nested:
        return LossJob(ours, theirs, question.gradient), sizes
    return LossJob(ours[0], theirs[0], question.gradient), None


def _padded(images: list[Boxes], length: int) -> Tensor:
    """Return boxes [B, length, 4], with zeros after the boxes of each image."""
    padded = np.zeros((len(images), length, 4))
    for rows, boxes in zip(padded, images, strict=True):
        rows[: len(boxes)] = np.array(boxes).reshape(-1, 4)
    return torch.from_numpy(padded)


def _invalid(message: str) -> ApiError:
    return ApiError(422, "invalid_boxes", message)
