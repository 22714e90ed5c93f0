"""Many images: several in a request, several requests at a time."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lensbox.client.answers import ImageDetections
from lensbox.client.errors import ServiceError
from lensbox.client.image_bytes import Image, image_bytes
from lensbox.client.model import Limits
from lensbox.common.errors import InputError, LensboxError, system_reason

if TYPE_CHECKING:
    from lensbox.client.connection import Answer, Connection

Result = ImageDetections | LensboxError

BATCH_SIZE = 8  # images of a request, at most, unless another number is asked for
_OF_A_PART = 512  # bytes of a form beside a file, at most
# A request with more images takes longer, and there is a time for its answer. Of that:
_SOON, _LATE = 1 / 16, 1 / 4


class Pace:
    """How many images the next request has: one at first, and twice as many whenever an answer comes soon.

    So a service that takes a second for an image is not asked for eight at once by each connection. timeout:
    seconds for an answer.
    """

    def __init__(self, timeout: float) -> None:
        self._soon, self._late = _SOON * timeout, _LATE * timeout
        self.images = 1

    def answered(self, seconds: float, most: int) -> None:
        """After an answer; most: images of a request."""
        if seconds < self._soon:
            self.images = min(most, 2 * self.images)
        elif seconds > self._late:
            self.failed()

    def failed(self) -> None:
        """After a request that all its images could have a part in."""
        self.images = max(1, self.images // 2)


class ManyImages:
    """One call of `Client.detect_many`.

    batch_size: images of a request, at most. limits: gives those of the service; called for several images in
    a request.
    """

    def __init__(
        self,
        connection: "Connection",
        parameters: dict[str, float | str],
        batch_size: int,
        limits: Callable[[], Limits],
    ) -> None:
        self._connection = connection
        self._parameters = parameters
        self._batch_size = batch_size
        self._limits = limits
        self._pace = Pace(connection.timeout)
        self._lock = threading.Lock()
        self._most: int | None = None  # images of a request; None until it is known
        self._most_bytes = 0
        self._stopped = threading.Event()

    def results(self, images: Iterable[Image], connections: int) -> Generator[Result, None, None]:
        """Of each image, in their order; closing it asks for no more."""
        remaining = iter(images)
        waiting: deque[Future[list[Result]]] = deque()
        with ThreadPoolExecutor(connections, thread_name_prefix="lensbox-client") as pool:
            try:
                while batch := list(itertools.islice(remaining, self._pace.images)):
                    waiting.append(pool.submit(self._of_batch, batch))
                    # As many again are ready to be sent while the first answer is awaited.
                    if len(waiting) == 2 * connections:
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _of_batch(self, images: Sequence[Image]) -> list[Result]:
        results: dict[int, Result] = {}
        for files in _requests(images, results, self._most_bytes):
            results.update(zip(files, self._of_files(list(files.values())), strict=True))
        return [results[index] for index in range(len(images))]

    def _of_files(self, files: Sequence[bytes]) -> list[Result]:
        """Of one request, if all goes well."""
        begin = time.monotonic()
        try:
            if len(files) == 1:
                results: list[Result] = [self._ask(content=files[0]).read(ImageDetections.from_json)]
            else:
                results = _of_each(self._ask(files=[("image", file) for file in files]), len(files))
        except ServiceError as error:
            if len(files) == 1 or not error.is_of_one_image or self._stopped.is_set():
                return [error] * len(files)
        else:
            self._pace.answered(time.monotonic() - begin, self._most_images())
            return results
        # One of them may be to blame for it, or that they are so many.
        self._pace.failed()
        return [result for file in files for result in self._of_files([file])]

    def _most_images(self) -> int:
        """Of a request; it has one to a service that does not tell. Asked once one was answered."""
        with self._lock:
            if self._most is None:
                try:
                    limits = self._limits() if self._batch_size > 1 else None
                except ServiceError:
                    limits = None
                self._most = min(self._batch_size, limits.max_images) if limits else 1
                self._most_bytes = limits.max_body_bytes if limits else 0
            return self._most

    def _ask(self, **body: Any) -> "Answer":
        return self._connection.ask("POST", "/v1/detect", self._stopped, parameters=self._parameters, **body)


def _requests(
    images: Sequence[Image], results: dict[int, Result], most_bytes: int
) -> Iterator[dict[int, bytes]]:
    """Files by their places, as many at a time as go into a request, read when it is their turn. One that
    cannot be read is an error in `results`."""
    files: dict[int, bytes] = {}
    size = 0
    for index, image in enumerate(images):
        file = _file(image)
        if isinstance(file, InputError):
            results[index] = file
            continue
        if files and size + len(file) + _OF_A_PART > most_bytes:
            yield files
            files, size = {}, 0
        files[index] = file
        size += len(file) + _OF_A_PART
    if files:
        yield files


def _file(image: Image) -> bytes | InputError:
    try:
        return image_bytes(image)
    except OSError as error:  # such as FileNotFoundError
        name = image if isinstance(image, str | Path) else "image"
        return InputError(f"{name} cannot be read: {system_reason(error)}")
    except (ValueError, TypeError) as error:
        return InputError(str(error))


def _of_each(answer: "Answer", count: int) -> list[Result]:
    """Of an answer to several images. Raises ServiceError."""

    def read(document: Any) -> list[Result]:
        results = [_one_of_many(one, answer.request_id) for one in document["images"]]
        if len(results) != count:
            raise ValueError(f"an answer must have {count} images, got {len(results)}")
        return results

    return answer.read(read)


def _one_of_many(one: dict[str, Any], request_id: str | None) -> Result:
    if "error" in one:
        return ServiceError.from_problem(one["error"], one["error"]["status"], request_id)
    return ImageDetections.from_json(one)
