"""POST /v1/loss."""

from concurrent.futures import Future
from typing import Any

from fastapi import Request
from torch import Tensor

from lensbox.serve.engine.jobs import Loss, LossJob
from lensbox.serve.errors import ApiError
from lensbox.serve.http.answers import LossAnswer
from lensbox.serve.http.service import model_of, service_of
from lensbox.serve.requests.body import receive
from lensbox.serve.requests.boxes import LossRequest, read_loss_request
from lensbox.serve.requests.detect_request import NoParameters, query_parameters
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
