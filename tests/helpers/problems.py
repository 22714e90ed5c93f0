"""Problem documents: the error answers of the service."""

from http import HTTPStatus

import httpx


def problem_of(response: httpx.Response) -> dict[str, str]:
    """Check that an answer is a problem document of RFC 9457; return `code` and, as `message`, detail."""
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert list(document) == ["type", "title", "status", "detail", "code"]
    assert document["type"] == "about:blank"
    assert document["status"] == response.status_code
    assert document["title"] == HTTPStatus(response.status_code).phrase
    return {"code": document["code"], "message": document["detail"]}
