"""Clients that wait for leave to send a body (`Expect: 100-continue`), and are answered without it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class LeaveToSend:
    """An ASGI application whose answers to those who had no leave end the connection.

    Such a client may send the body all the same, or may not: what it sends next could be either that or
    another request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not any(name == b"expect" for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        had_leave = False

        async def give_leave() -> Message:
            nonlocal had_leave
            had_leave = True  # the server gives it when it is asked for the body
            return await receive()

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and not had_leave:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, give_leave, send_and_close)
