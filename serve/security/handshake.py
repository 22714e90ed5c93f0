"""TLS for connections that count from the moment they are accepted.

A server of asyncio that is given a certificate tells nobody of a connection before its handshake is over, so
that there could be any number of clients that begin one and do not go on.
"""

import asyncio
import ssl
from typing import Any


def handshaking_protocol(protocol: Any, timeout: float) -> Any:
    """uvicorn's HTTP/1.1 connections, which begin with the handshake where uvicorn's configuration has TLS.

    protocol: a class of them, which gets the connection once it is secure. timeout: seconds for the
    handshake. Until then `shutdown` ends the connection, and so do a failure and the timeout, each with one
    call of `connection_lost`.
    """

    class HandshakingProtocol(protocol):  # type: ignore[misc]
        _handshake: "asyncio.Task[None] | None" = None  # while it lasts

        def connection_made(self, transport: asyncio.Transport) -> None:
            if self.config.ssl is None:
                super().connection_made(transport)
                return
            self.connections.add(self)  # which uvicorn shuts down at its end
            self._early = bytearray()
            self._insecure = transport
            self._handshake = self.loop.create_task(self._shake_hands(self.config.ssl))

        async def _shake_hands(self, context: ssl.SSLContext) -> None:
            failure: Exception | None = None
            secure = None
            try:
                secure = await self.loop.start_tls(
                    self._insecure, self, context, server_side=True, ssl_handshake_timeout=timeout
                )
            except Exception as error:  # of TLS, of the network, or for want of time
                failure = error
            if secure is None:  # as it also is if the connection has ended meanwhile
                self.connection_lost(failure)
                return
            self._handshake = None
            super().connection_made(secure)
            if self._early:
                self.data_received(bytes(self._early))

        def data_received(self, data: bytes) -> None:
            if self._handshake is None:
                super().data_received(data)
            else:  # of a first request that came with the end of the handshake, before that was told here
                self._early += data

        def shutdown(self) -> None:
            if self._handshake is None:
                super().shutdown()
                return
            self._insecure.abort()
            self._handshake.cancel()
            self.connection_lost(None)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._handshake is None:
                super().connection_lost(exc)
            else:
                self.connections.discard(self)

    return HandshakingProtocol
