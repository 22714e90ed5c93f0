"""The answers of a service as Python types, and its errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lensbox.common.detections import number_of_json
from lensbox.common.errors import ExitCode, LensboxError

SHOWN = 200  # characters of an unexpected answer in a message
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
        return cls(
            number_of_json(answer["loss"]),
            int(answer["slots"]),
            None if gradient is None else _numbers(gradient),
        )


@dataclass(frozen=True)
class Model:
    """The model of a service.

    classes: names of the labels; empty if the detector has none. score_threshold, iou_threshold: defaults of
    the artifact. version: of the service. device: of the model.
    """

    name: str
    classes: tuple[str, ...]
    score_threshold: float
    iou_threshold: float
    version: str
    device: str

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Model":
        """Parse an answer of /v1/model. Raise KeyError, TypeError or ValueError if malformed."""
        defaults, service = document["defaults"], document["service"]
        return cls(
            str(document["name"]),
            tuple(document.get("classes", ())),
            float(defaults["score_threshold"]),
            float(defaults["iou_threshold"]),
            str(service["version"]),
            str(service["device"]),
        )


class ServiceError(LensboxError):
    """The service refused a request, or there was no answer.

    status: HTTP status, None without an answer. code: stable word of the problem document, such as
    "undecodable_image"; "no_answer" without an answer, "unexpected_answer" if it is not a Lensbox service.
    detail: message for people. request_id: ID of the request in the service's log.
    """

    exit_code = ExitCode.UNUSABLE

    def __init__(self, status: int | None, code: str, detail: str, request_id: str | None = None) -> None:
        known = " ".join(str(part) for part in (status, code) if part is not None)
        known += f", request {request_id}" if request_id else ""
        super().__init__(f"{detail} ({known})")
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id

    @property
    def is_of_one_image(self) -> bool:
        """Return whether the error concerns one image only, so that the next may succeed."""
        return self.status in _OF_ONE_IMAGE


def unexpected(answer: object) -> ServiceError:
    """Return the error for an answer that does not come from a Lensbox service."""
    text = (answer if isinstance(answer, str) else repr(answer))[:SHOWN]
    detail = f"the answer does not come from a Lensbox service: {text!r}"
    return ServiceError(200, "unexpected_answer", detail)


def _numbers(values: list[Any]) -> list[Any]:
    return [_numbers(value) if isinstance(value, list) else number_of_json(value) for value in values]
