"""POST /v1/loss, with boxes in JSON."""

from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch
from fastapi import Request
from msgspec import Struct
from msgspec.json import Decoder
from torch import Tensor

from lensbox.serve.engine.jobs import Loss, LossJob
from lensbox.serve.errors import ApiError
from lensbox.serve.http.answers import LossAnswer
from lensbox.serve.http.service import model_of, service_of
from lensbox.serve.requests.body import Body, NoParameters, query_parameters, read_json, receive
from lensbox.serve.requests.futures import result_for


async def loss(request: Request) -> Any:
    """The loss of predicted boxes against target boxes: the detector's own loss, or else the GIoU loss.

    The body is JSON, whatever Content-Type says.
    """
    service = service_of(request)
    settings, engine = service.settings, model_of(request).engine
    query_parameters(request, NoParameters)
    if "loss" not in engine.ready_artifact().metadata.methods:
        message = "the artifact must have a loss, got one without; serve a TorchScript artifact"
        raise ApiError(422, "no_loss", message)
    content, deadline = await receive(request, settings.max_json_bytes, settings)
    asked: LossRequest

    def compute() -> "Future[Loss]":
        nonlocal asked
        asked = read_loss_request(content, settings.max_boxes)
        return engine.submit(LossJob(asked.predictions, asked.targets, asked.gradient), deadline.at)

    found = await result_for(request, service.json_parser.submit(compute), deadline)
    slots = int((asked.targets[..., 3] != 0).sum())
    answer = LossAnswer(found.value, slots)
    if asked.gradient and found.gradient is None:
        message = "gradient must be left out: the detector's own loss has no gradient"
        raise ApiError(422, "unsupported_loss", message)
    if asked.gradient:
        answer.gradient = _nested(found.gradient, asked.sizes)
    return answer


def _nested(gradient: Tensor, sizes: tuple[int, ...] | None) -> list[Any]:
    """Return the gradient nested as the predictions were."""
    if sizes is None:
        return gradient.tolist()
    return [image[:size].tolist() for image, size in zip(gradient, sizes, strict=True)]


_Box = list[float]
_Numbers = list[float | list[float]]


class LossQuestion(Struct, forbid_unknown_fields=True):
    """The body of /v1/loss.

    predictions: a list of boxes, or a list of such lists per image, of any length; xyxy in pixels. targets:
    nested as predictions, at most as many boxes per image; target i of an image belongs to prediction i, and
    y2 = 0 marks a prediction without a target. gradient: true to return d loss / d predictions, too.
    """

    predictions: list[_Numbers]
    targets: list[_Numbers]
    gradient: bool = False


_QUESTION = Decoder(LossQuestion)


class LossRequest(NamedTuple):
    """Predicted boxes, each with its target.

    predictions, targets: float64 [N, 4], or [B, N, 4] with zeros after the boxes of each image. sizes: number
    of predictions of each image; None for [N, 4]. gradient: True to return the gradient beside the loss.
    """

    predictions: Tensor
    targets: Tensor
    sizes: tuple[int, ...] | None
    gradient: bool


def read_loss_request(body: Body, max_boxes: int) -> LossRequest:
    """Return the boxes in a body.

    Raises ApiError: 413 for more than `max_boxes` boxes after padding each image to the largest; 422 for any
    other invalid body.
    """
    # Before parsing, which holds the GIL: a megabyte of empty lists takes 0.1 s.
    if (arrays := body.count(b"[")) > (most := 2 * (1 + 2 * max_boxes)):
        raise _too_many(f"the body must have at most {most} arrays", arrays)
    question = read_json(body, _QUESTION, 422, "invalid_boxes")
    predictions, is_nested = _images(question.predictions, "predictions")
    targets, targets_are_nested = _images(question.targets, "targets")
    if is_nested != targets_are_nested:
        forms = "images and boxes" if is_nested else "boxes and images"
        raise _invalid(f"predictions and targets must be lists of boxes, or lists of images, got {forms}")
    if len(predictions) != len(targets):
        counts = f"{len(predictions)} and {len(targets)}"
        raise _invalid(f"predictions and targets must have the same number of images, got {counts}")
    for index, (have, need) in enumerate(zip(predictions, targets, strict=True)):
        if len(need) > len(have):
            rule = f"must have at most as many boxes as its predictions, which are {len(have)}"
            raise _invalid(f"targets of image {index} {rule}, got {len(need)}")
    sizes = tuple(map(len, predictions))
    if (slots := len(sizes) * max(1, *sizes)) > max_boxes:
        rule = f"predictions must have at most {max_boxes} boxes, padded to the largest image"
        raise _too_many(rule, slots)
    ours, theirs = (_padded(images, max(sizes)) for images in (predictions, targets))
    if is_nested:
        return LossRequest(ours, theirs, sizes, question.gradient)
    return LossRequest(ours[0], theirs[0], None, question.gradient)


def _images(given: Any, name: str) -> tuple[list[list[_Box]], bool]:
    """Return the boxes of each image, and whether there are images; boxes without images are one image."""
    is_nested = bool(given) and (not given[0] or isinstance(given[0][0], list))
    images = given if is_nested else [given]
    for image, boxes in enumerate(images):
        for index, box in enumerate(boxes):
            place = f"{name}[{image}][{index}]" if is_nested else f"{name}[{index}]"
            if not isinstance(box, list) or any(isinstance(number, list) for number in box):
                raise _invalid(f"{place}: expected a box of 4 numbers, got another depth of lists")
            if len(box) != 4:
                raise _invalid(f"{place}: a box has 4 numbers, got {len(box)}")
    return images, is_nested


def _padded(images: list[list[_Box]], length: int) -> Tensor:
    """Return boxes [B, length, 4], with zeros after the boxes of each image."""
    padded = np.zeros((len(images), length, 4))
    for rows, boxes in zip(padded, images, strict=True):
        rows[: len(boxes)] = np.array(boxes).reshape(-1, 4)
    return torch.from_numpy(padded)


def _invalid(message: str) -> ApiError:
    return ApiError(422, "invalid_boxes", message)


def _too_many(rule: str, got: int) -> ApiError:
    return ApiError(413, "too_many_boxes", f"{rule}, got {got}")
