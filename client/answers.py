"""The answer of /v1/loss, and the errors of a service. `common` has the answer of /v1/detect."""

from dataclasses import dataclass
from typing import Any

from lensbox.common.detections import number_of_json
from lensbox.common.errors import ExitCode, LensboxError

# Statuses that concern one image and say nothing about the next.
_OF_ONE_IMAGE = frozenset({400, 408, 413, 415, 500, 504})


@dataclass(frozen=True)
class LossAnswer:
    """The GIoU loss of boxes.

    loss: mean of 1 - GIoU over the predictions with a target. slots: number of these. gradient: d loss / d
    predictions, nested like the predictions; None unless requested. Numbers that are not finite are NaN.
    """

    loss: float
    slots: int
    gradient: list[Any] | None = None

    @classmethod
    def from_json(cls, answer: Any) -> "LossAnswer":
        """Parse an answer of /v1/loss. Raise KeyError, TypeError or ValueError if malformed."""
        gradient = answer.get("gradient")
        numbers = None if gradient is None else _numbers(gradient)
        return cls(number_of_json(answer["loss"]), int(answer["slots"]), numbers)


class ServiceError(LensboxError):
    """The service refused a request, or there was no answer.

    status: HTTP status, None without an answer. code: stable word of the problem document, such as
    "undecodable_image"; "no_answer" without an answer, "unexpected_answer" if it is not a Lensbox service.
    detail: message for people. request_id: ID of the request in the service's log. retry_after: seconds until
    a retry may succeed, None if it cannot.
    """

    exit_code = ExitCode.UNUSABLE

    def __init__(
        self,
        status: int | None,
        code: str,
        detail: str,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        known = " ".join(str(part) for part in (status, code) if part is not None)
        known += f", request {request_id}" if request_id else ""
        super().__init__(f"{detail} ({known})")
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id
        self.retry_after = retry_after

    @property
    def is_of_one_image(self) -> bool:
        """Return whether the error concerns one image only, so that the next may succeed."""
        return self.status in _OF_ONE_IMAGE


def _numbers(values: list[Any]) -> list[Any]:
    return [_numbers(value) if isinstance(value, list) else number_of_json(value) for value in values]
