"""The state that all requests of one app share, the endpoints, which admit requests, and their calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request, Response
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from lensbox.serve.engine.engines import Model
from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import NotReadyError, OverloadError
from lensbox.serve.http.answers import answer_to, json_response
from lensbox.serve.http.api_keys import Keys
from lensbox.serve.models.served import Models, ModelVersion
from lensbox.serve.observability.metrics import Metrics, State
from lensbox.serve.requests.body import TimeLimit, time_limit
from lensbox.serve.requests.decoding import Decoders, in_thread
from lensbox.serve.settings import Settings

Result = TypeVar("Result")
Returned = TypeVar("Returned")

SERVED = "lensbox.model"  # key of the ASGI scope
_IN_FLIGHT = 2  # jobs of a request: the engine need not wait, and serves other requests in between
_PAUSE = 0.02  # seconds before the engine is asked again


@dataclass
class Service:
    """Settings, models, keys, metrics, threads and state of one app.

    in_progress: number of admitted requests. draining: True once the service is shutting down.
    """

    settings: Settings
    models: Models
    keys: Keys
    metrics: Metrics
    in_progress: int = 0
    draining: bool = False

    def __post_init__(self) -> None:
        self.decoders = Decoders(self.settings, self.metrics.image_decoded)
        # Not the decoders' threads: a loss does not wait for images. One thread, as parsing holds the GIL.
        self.json_parser = ThreadPoolExecutor(1, thread_name_prefix="lensbox-json")

    def admit(self, request: Request, limit: TimeLimit) -> "Call":
        """Shed load: admit or refuse a request, before its body is read.

        The request holds the version of its model until its answer is ready. Store the version in the scope,
        for the headers of the answer, metrics and logs. Raise NotReadyError; ApiError (404); OverloadError at
        `max_requests`.
        """
        served = model_of(request)
        model = served.engine.ready_artifact()
        request.scope[SERVED] = served
        if self.in_progress >= self.settings.max_requests:
            raise OverloadError(f"{self.in_progress} requests are already in progress; try again later")
        served.in_progress += 1
        self.in_progress += 1
        return Call(request, self, served, model, limit)

    def check_ready(self) -> None:
        """Raise NotReadyError unless the service can take images for all its models."""
        self.models.check_loaded()
        self.decoders.check()

    def check_available(self) -> None:
        """Raise NotReadyError unless new requests should come."""
        if self.draining:
            raise NotReadyError("the service is shutting down")
        self.check_ready()

    @property
    def is_ready(self) -> bool:
        """True if `check_ready` does not raise."""
        try:
            self.check_ready()
        except NotReadyError:
            return False
        return True

    def state(self) -> State:
        """Return the state for `Metrics.watch`."""
        models = {one.name: (one.engine.jobs, one.in_progress) for one in self.models.all}
        return self.is_ready and not self.draining, models


def service_of(request: Request) -> Service:
    """Return the service that a request belongs to."""
    service: Service = request.app.state.service
    return service


def model_of(request: Request) -> ModelVersion:
    """Return the model that the path names, or the default model. Raise what `Models.find` raises."""
    models, names = service_of(request).models, request.path_params
    return models.find(names["name"], names.get("version")) if "name" in names else models.all[0]


@dataclass(frozen=True)
class Call:
    """An admitted request, which computes. Its version of the model stays the same until the answer."""

    request: Request
    service: Service
    served: ModelVersion
    model: Model
    limit: TimeLimit

    async def compute(self, jobs: Sequence[Job[Result]]) -> list[Result]:
        """Return the results of jobs, in order. After an error, submit no further job.

        Wait for memory if there is none for a later job, as the work so far would be lost.
        """
        submit, deadline = self.served.engine.submit, self.limit.at
        if len(jobs) == 1:
            return [await submit(jobs[0], deadline)]
        results: list[Any] = [None] * len(jobs)
        numbers = iter(range(len(jobs)))

        async def work() -> None:
            for number in numbers:
                while True:
                    try:
                        results[number] = await submit(jobs[number], deadline)
                        break
                    except OverloadError:
                        if number == 0:
                            raise
                    await asyncio.sleep(_PAUSE)

        workers = [asyncio.create_task(work()) for _ in range(_IN_FLIGHT)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return results

    async def in_parser(self, function: Callable[..., Returned], *arguments: Any) -> Returned:
        """Call a function in the thread that reads and writes what takes long."""
        return await in_thread(self.service.json_parser, function, *arguments)


@dataclass(frozen=True)
class Endpoint:
    """One method of one path: an ASGI application with the rules for its requests.

    answer: returns a response or what becomes JSON, or raises an exception (see `answers.answer_to`). It
    takes a Call if requests are admitted, else a Request. is_open: requests need no API key. is_probe:
    requests are logged at debug level and not traced. is_admitted: requests pass admission control.

    For the OpenAPI document, beside the docstring of `answer`: tag ("" leaves the path out), answers (type of
    the answer), query (type of its parameters).
    """

    method: str
    path: str
    answer: Callable[[Any], Awaitable[Any]]
    tag: str = ""
    answers: type[Any] | None = None
    query: type[Struct] | None = None
    is_open: bool = False
    is_probe: bool = False
    is_admitted: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # for metrics and logs
        request = Request(scope, receive, send)
        service, call = service_of(request), None
        try:
            try:
                if service.keys.api and not self.is_open:
                    service.keys.check(request.headers)
                if self.is_admitted:
                    with time_limit(request.headers) as limit:
                        call = service.admit(request, limit)
                        answer = await self.answer(call)
                else:
                    answer = await self.answer(request)
                response = answer if isinstance(answer, Response) else json_response(answer)
            except (Exception, asyncio.CancelledError) as error:
                response = answer_to(error, scope)
        finally:
            if call is not None:  # before a client that does not read
                call.served.in_progress -= 1
                service.in_progress -= 1
        await response(scope, receive, send)
