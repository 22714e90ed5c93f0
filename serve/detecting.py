"""From the files of a request to what is found in them: decoded in threads, computed by the engine."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from lensbox.runtime import Detections, Photo
from lensbox.serve.answering import settled
from lensbox.serve.deadline import Deadline
from lensbox.serve.engine.devices import largest_batch
from lensbox.serve.engine.engines import Engine
from lensbox.serve.engine.errors import OverloadError
from lensbox.serve.engine.jobs import DetectJob
from lensbox.serve.errors import ApiError
from lensbox.serve.following import followed
from lensbox.serve.image_list import Source, Url
from lensbox.serve.schemas import DetectParameters
from lensbox.serve.service import Service
from lensbox.serve.url_fetch import ByteBudget

Item = TypeVar("Item")
Result = TypeVar("Result")


class Found(NamedTuple):
    """What is in a photograph of that size, upright and in pixels."""

    width: int
    height: int
    detections: Detections


@dataclass(frozen=True)
class Finder:
    """Finds with one set of parameters, until a deadline. Raises NotReadyError if there is no model."""

    service: Service
    parameters: DetectParameters
    deadline: Deadline

    def find(self, file: bytes, is_alone: bool = False) -> "Future[tuple[Photo, Detections]]":
        """The photograph in a file as the model wants it, and what is in it. is_alone: as for `Decoders`."""
        service, parameters, deadline = self.service, self.parameters, self.deadline
        artifact = service.instance.ready_artifact()
        canvas, reading = artifact.metadata.canvas, artifact.reading(parameters.orientation)

        def ask(photo: Photo) -> "Future[Detections]":
            job = DetectJob(photo, parameters.score_threshold, parameters.iou_threshold)
            return service.instance.submit(job, deadline.at)

        return followed(service.decoders.submit(file, canvas, reading, deadline.at, is_alone), ask)

    async def find_each(self, sources: Sequence[Source], used: int) -> list[Found | ApiError]:
        """What is in each image, or why it cannot be read. used: bytes of the body that they came in.

        Each is a job of its own, so that an engine takes them together with others. Raises OverloadError,
        NotReadyError, DeadlineError and what else is not the fault of one image.
        """
        settings = self.service.settings
        budget = ByteBudget(settings.max_body_bytes, used)

        async def find(source: Source) -> Found:
            if isinstance(source, ApiError):
                raise source
            if isinstance(source, Url):
                source = await self.service.urls.fetch(source.text, budget)
            photo, detections = await settled(self.find(source))
            return Found(photo.width, photo.height, detections)

        return await of_each(
            sources, find, _at_once(self.service.instance, settings.max_batch, settings.queue_size)
        )


def _at_once(engine: Engine, max_batch: int | None, queue_size: int) -> int:
    """How many images of a request are on their way: two batches, one of which is being decoded; at most half
    of the queue, so that one request does not fill it."""
    batch = max_batch or largest_batch(engine.ready_artifact().device)
    return max(1, min(2 * batch, queue_size // 2))


async def of_each(
    items: Sequence[Item], do: Callable[[Item], Awaitable[Result]], at_once: int
) -> list[Result | ApiError]:
    """What `do` gives of each item, or the ApiError that it raises, with at most `at_once` at a time.

    For want of room (OverloadError) fewer are done at a time, and what was refused is tried again. What `do`
    raises otherwise, and OverloadError where no other is left, ends all.
    """
    left = deque(enumerate(items))
    results: dict[int, Result | ApiError] = {}
    working = min(at_once, len(items))

    async def work() -> None:
        nonlocal working
        try:
            while left:
                index, item = left.popleft()
                try:
                    results[index] = await do(item)
                except ApiError as error:
                    results[index] = error
                except OverloadError:
                    if working == 1:
                        raise
                    left.append((index, item))
                    return
        finally:
            working -= 1

    workers = [asyncio.ensure_future(work()) for _ in range(working)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    return [results[index] for index in range(len(items))]
