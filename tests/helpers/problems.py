"""Problem documents, in which the service answers errors."""

from http import HTTPStatus

import httpx


def problem_of(response: httpx.Response) -> dict[str, str]:
    """`code` and `message`, its detail, of an answer that is checked to be a problem document of RFC 9457."""
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert list(document) == ["type", "title", "status", "detail", "code"]
    assert document["type"] == "about:blank"
    assert document["status"] == response.status_code
    assert document["title"] == HTTPStatus(response.status_code).phrase
    return {"code": document["code"], "message": document["detail"]}
