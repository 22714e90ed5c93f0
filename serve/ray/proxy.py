"""Answer 503 in Ray's HTTP proxies if a replica dies with a request in progress.

By default the proxies answer 500, which tells clients not to retry. Set this variable before Ray starts:

    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=lensbox.serve.ray.proxy:middlewares
"""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.errors import NotReadyError
from lensbox.serve.http.answers import error_response


def middlewares() -> list[Middleware]:
    """Return the middleware of one of Ray's proxies."""
    return [Middleware(answer_503_after_loss)]


def answer_503_after_loss(app: ASGIApp) -> ASGIApp:
    """Answer 503 with Retry-After if no answer of an app began.

    Hold back the head of an answer until the first part of its body arrives: a replica may die between the
    two.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
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

        await app(scope, receive, hold)
        if not answered:
            error = NotReadyError("the replica ended while it computed this request; try again later")
            await error_response(scope["path"], error)(scope, receive, send)

    return answer
