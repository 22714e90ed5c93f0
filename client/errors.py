"""What goes wrong between a client and its service."""

from collections.abc import Mapping
from typing import Any

from lensbox.common.errors import ExitCode, LensboxError

# Statuses that are about one image and say nothing of the next.
_OF_ONE_IMAGE = frozenset({400, 408, 413, 415, 500, 504})


SHOWN = 200  # characters of an answer that nobody understands


class ServiceError(LensboxError):
    """The service refused a request, or there was no answer.

    status: of the answer, None where none came. code: the problem document's stable word, such as
    "undecodable_image"; "no_answer" where none came, "unexpected_answer" for one that is not of a Lensbox
    service. detail: what was wrong, for people. request_id: by which the service's log knows the request.
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

    @classmethod
    def from_problem(
        cls, problem: Mapping[str, Any], status: int, request_id: str | None = None
    ) -> "ServiceError":
        """Of a problem document (RFC 9457) with `code`. Raises KeyError, TypeError for another one."""
        return cls(status, str(problem["code"]), str(problem["detail"]), request_id)

    @property
    def is_of_one_image(self) -> bool:
        """Whether the next image may well be answered: not so without a key, a service or a free place."""
        return self.status in _OF_ONE_IMAGE


def unexpected(answer: object, status: int = 200) -> ServiceError:
    """What to raise for an answer that no Lensbox service gives."""
    text = (answer if isinstance(answer, str) else repr(answer))[:SHOWN]
    return ServiceError(status, "unexpected_answer", f"the answer is not that of a Lensbox service: {text!r}")
