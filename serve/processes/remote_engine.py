"""The front end's side of an engine in another process."""

import asyncio
import itertools
import logging
import math
import pickle
import socket
import time
from typing import Any, TypeVar, cast

from lensbox.serve.engine.engines import Engine, RemoteModelInfo
from lensbox.serve.engine.jobs import Job, settle
from lensbox.serve.errors import NotReadyError, OverloadError
from lensbox.serve.models.control import EngineAddress
from lensbox.serve.processes.messages import (
    Arena,
    Request,
    framed,
    request_message,
    unframed,
    unpacked_answers,
)

_log = logging.getLogger(__name__)

_RETRY = 0.05  # seconds between attempts to connect
_LARGE = 4 << 20  # bytes that a thread copies

Result = TypeVar("Result")


class RemoteEngine(Engine, asyncio.Protocol):
    """Send jobs to an engine process, in the event loop. Connect again when the process was replaced.

    arena: shared memory for the tensors of jobs.
    """

    def __init__(self, address: EngineAddress, arena: Arena) -> None:
        self._address = address
        self._arena = arena
        self._numbers = itertools.count()
        # By number: the future of a job, and the offsets of its blocks in the arena.
        self._pending: dict[int, tuple[asyncio.Future[Any], list[int]]] = {}
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._model: RemoteModelInfo | None = None
        self._why_not = "the model is still loading"
        self._connecting: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Start to connect. Call it in the event loop."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    @property
    def jobs(self) -> int:
        """Number of jobs in flight."""
        return len(self._pending)

    def ready_artifact(self) -> RemoteModelInfo:
        """Return the engine's model. Raise NotReadyError with the reason if there is none."""
        if self._model is None:
            raise NotReadyError(self._why_not)
        return self._model

    async def submit(self, job: Job[Result], deadline: float = math.inf) -> Result:
        """See `Engine.submit`."""
        number, blocks = next(self._numbers), dict[int, memoryview]()

        def place(content: memoryview) -> int:
            offset = self._arena.allocate(len(content))
            if offset is None:
                self._arena.free(blocks)
                raise OverloadError("the shared memory is full of waiting images; try again later")
            blocks[offset] = content
            return offset

        request = Request(number, job, time.monotonic(), deadline)  # type: ignore[arg-type]
        message = framed(request_message(request, place))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        if sum(map(len, blocks.values())) > _LARGE:
            copying = loop.run_in_executor(None, self._arena.write, blocks)
            try:
                await asyncio.shield(copying)
            except asyncio.CancelledError:
                copying.add_done_callback(lambda _: self._arena.free(blocks))
                raise
        else:
            self._arena.write(blocks)
        transport = self._transport
        if transport is None:  # perhaps since the copy began
            self._arena.free(blocks)
            raise NotReadyError(self._why_not)
        self._pending[number] = future, list(blocks)
        transport.write(message)
        try:
            return await future
        except asyncio.CancelledError:
            transport.write(framed(request_message(Request(number), place)))
            raise

    def stop(self, timeout: float = 0.0) -> bool:
        """Disconnect. Jobs in flight are lost."""
        self._is_stopped, self._why_not = True, "the service is shutting down"
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        return True

    # --- asyncio's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        for message in unframed(self._received):
            if self._model is None:
                self._model = pickle.loads(message)
                continue
            for number, result in unpacked_answers(message):
                self._end(number, result)

    def connection_lost(self, exc: Exception | None) -> None:
        device, was_ready = self._address.device, self._model is not None
        self._transport = self._model = None
        self._received.clear()
        if was_ready and not self._is_stopped:
            self._why_not = f"the engine on {device} has ended and is being restarted"
        if self._pending and not self._is_stopped:
            _log.warning("%d requests failed because their engine ended", len(self._pending))
        for number in list(self._pending):
            self._end(number, NotReadyError(f"the engine on {device} has ended; try again later"))
        if not self._is_stopped:
            self.start()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.setblocking(False)
                await loop.sock_connect(connection, self._address.path)
                greeting = self._address.key + self._arena.size.to_bytes(8, "little")
                socket.send_fds(connection, [greeting], [self._arena.file])
                await loop.create_unix_connection(lambda: self, sock=connection)
                return
            except OSError:
                connection.close()
                await asyncio.sleep(_RETRY)

    def _end(self, number: int, result: Any) -> None:
        """End a job with its result, or an exception."""
        future, blocks = self._pending.pop(number)
        self._arena.free(blocks)
        settle(future, result)
