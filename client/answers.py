"""The answer of /v1/loss, and the errors of a service. `common` has the answer of /v1/detect."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from lensbox.common.detections import Number, numbers_of_json
from lensbox.common.errors import ExitCode, LensboxError

# Statuses that concern one image and say nothing about the next.
_OF_ONE_IMAGE = frozenset({400, 408, 413, 415, 500, 504})


@dataclass(frozen=True)
class LossAnswer:
    """The GIoU loss of boxes.

    loss: mean of 1 - GIoU over the predictions with a target. slots: number of these. gradient: d loss / d
    predictions, nested like the predictions; None unless requested. Numbers that are not finite are NaN.
    """

    loss: Number
    slots: int
    gradient: Annotated[list[Any], BeforeValidator(numbers_of_json)] | None = None


@dataclass(eq=False)
class ServiceError(LensboxError):
    """The service refused a request, or there was no answer.

    detail: message for people. code: stable word of the problem document, such as "undecodable_image";
    "no_answer" without an answer, "unexpected_answer" if it is not a Lensbox service. status: HTTP status,
    None without an answer. request_id: ID of the request in the service's log. retry_after: seconds until a
    retry may succeed, None if it cannot.
    """

    detail: str
    code: str = "no_answer"
    status: int | None = None
    request_id: str | None = None
    retry_after: float | None = None

    exit_code = ExitCode.UNUSABLE

    def __str__(self) -> str:
        status = "" if self.status is None else f"{self.status} "
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.detail} ({status}{self.code}{request})"

    @property
    def is_of_one_image(self) -> bool:
        """Return whether the error concerns one image only, so that the next may succeed."""
        return self.status in _OF_ONE_IMAGE
