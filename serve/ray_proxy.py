"""What Ray's HTTP proxies answer where a replica dies with a request in its hands.

By themselves they answer 500, which tells a client that its request was at fault. Before Ray starts, set

    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=lensbox.serve.ray_proxy:middlewares
"""

import json
from http import HTTPStatus

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STATUS = HTTPStatus.SERVICE_UNAVAILABLE
_PROBLEM = {
    "type": "about:blank",
    "title": _STATUS.phrase,
    "status": _STATUS.value,
    "detail": "the replica that had the request is gone; try again",
    "code": "not_ready",
}


def middlewares() -> list[Middleware]:
    """For Ray, which calls it in each of its proxies."""
    return [Middleware(RetryAfterLoss)]


class RetryAfterLoss:
    """Answers 503 with Retry-After where no answer began.

    The head of an answer is held back until the first part of its body is there: a replica that dies
    between them has not answered.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        head: Message | None = None
        answered = False

        async def hold(message: Message) -> None:
            nonlocal head, answered
            if message["type"] == "http.response.start":
                head = message
                return
            if head is not None:
                answered = True
                await send(head)
                head = None
            await send(message)

        await self.app(scope, receive, hold)
        if not answered:
            await _send_problem(scope, send)


async def _send_problem(scope: Scope, send: Send) -> None:
    """In the form of the protocol, as `errors.error_response`."""
    v2 = f"{scope['path']}/".startswith("/v2/")
    body = json.dumps({"error": _PROBLEM["detail"]} if v2 else _PROBLEM).encode()
    media_type = b"application/json" if v2 else b"application/problem+json"
    headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": _STATUS.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
