"""Encode images for a service, and send many of them: batches over several connections."""

import io
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from lensbox.client.answers import ImageDetections, Limits, ServiceError
from lensbox.common.errors import InputError, LensboxError, system_reason

if TYPE_CHECKING:
    from lensbox.client.connection import Answer, Connection

Image = str | Path | bytes | PIL.Image.Image | NDArray[np.uint8]
Result = ImageDetections | LensboxError

BATCH_SIZE = 8  # default maximum of images per request
_PART_OVERHEAD = 512  # upper bound of the bytes of a form beside each file
# A fast and a slow answer, as fractions of the timeout.
_FAST, _SLOW = 1 / 16, 1 / 4
# Modes that PNG stores. Pillow converts all others to RGB.
_PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")


def image_bytes(image: Image) -> bytes:
    """Return the bytes of an image file.

    image: a path; the bytes of a file; a Pillow image; or uint8 [H, W] (gray), [H, W, 3] (RGB) or [H, W, 4]
    (RGBA). The last two become PNG files. Raise TypeError, ValueError, or OSError for an unreadable file.
    """
    if isinstance(image, (str, Path)):
        return Path(image).read_bytes()
    if isinstance(image, bytes):
        return image
    if isinstance(image, np.ndarray):
        return _png(_picture(image))
    if isinstance(image, PIL.Image.Image):
        try:
            image.load()  # Pillow reads files lazily
        except Exception as error:  # decoders raise a dozen types on broken files
            raise ValueError(f"image must be a whole picture: {error or type(error).__name__}") from error
        return _png(image if image.mode in _PNG_MODES else image.convert("RGB"))
    raise TypeError(
        f"image must be a path, the bytes of a file, a Pillow image or an array, got {type(image).__name__}"
    )


def _picture(pixels: NDArray[Any]) -> PIL.Image.Image:
    if pixels.dtype != np.uint8:
        raise ValueError(f"image must be uint8, got {pixels.dtype}")
    is_gray = pixels.ndim == 2
    if 0 in pixels.shape or not (is_gray or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
        shape = list(pixels.shape)
        raise ValueError(f"image must have the shape [H, W], [H, W, 3] or [H, W, 4], got {shape}")
    return PIL.Image.fromarray(np.ascontiguousarray(pixels))


def _png(picture: PIL.Image.Image) -> bytes:
    buffer = io.BytesIO()
    # Level 1: compressing at higher levels usually takes longer than the network saves.
    picture.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


class Pace:
    """Choose the batch size: one image at first, doubled after a fast answer, halved after a slow one.

    A slow service then gets no large requests, which would time out. timeout: seconds per answer.
    """

    def __init__(self, timeout: float) -> None:
        self._fast, self._slow = _FAST * timeout, _SLOW * timeout
        self.images = 1

    def answered(self, seconds: float, most: int) -> None:
        """Record an answer. most: maximum batch size."""
        if seconds < self._fast:
            self.images = min(most, 2 * self.images)
        elif seconds > self._slow:
            self.failed()

    def failed(self) -> None:
        """Record a failed request."""
        self.images = max(1, self.images // 2)


class ManyImages:
    """One call of `Client.detect_many`.

    batch_size: maximum images per request. limits: returns the limits of the service; called before the first
    request with several images.
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
        self._most: int | None = None  # images per request; None until known
        self._most_bytes = 0
        self._stopped = threading.Event()

    def results(self, images: Iterable[Image], connections: int) -> Generator[Result, None, None]:
        """Yield a result per image, in order. Closing the generator sends no more requests."""
        remaining = iter(images)
        waiting: deque[Future[list[Result]]] = deque()
        with ThreadPoolExecutor(connections, thread_name_prefix="lensbox-client") as pool:
            try:
                while batch := list(itertools.islice(remaining, self._pace.images)):
                    waiting.append(pool.submit(self._batch_results, batch))
                    # Keep as many prepared requests as there are connections.
                    if len(waiting) == 2 * connections:
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _batch_results(self, images: Sequence[Image]) -> list[Result]:
        results: dict[int, Result] = {}
        for files in _requests(images, results, self._most_bytes):
            results.update(zip(files, self._send(list(files.values())), strict=True))
        return [results[index] for index in range(len(images))]

    def _send(self, files: Sequence[bytes]) -> list[Result]:
        """Send one request; if it fails, one per file."""
        begin = time.monotonic()
        try:
            if len(files) == 1:
                results: list[Result] = [self._ask(content=files[0]).read(ImageDetections.from_json)]
            else:
                results = _parse_results(self._ask(files=[("image", file) for file in files]), len(files))
        except ServiceError as error:
            if len(files) == 1 or not error.is_of_one_image or self._stopped.is_set():
                return [error] * len(files)
        else:
            self._pace.answered(time.monotonic() - begin, self._most_images())
            return results
        # One bad file may have failed the request, or the request was too large.
        self._pace.failed()
        return [result for file in files for result in self._send([file])]

    def _most_images(self) -> int:
        """Return the maximum number of images per request; 1 if the service does not announce a limit."""
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
    """Yield the files of each request by index, read when needed. Store errors of reading in `results`."""
    files: dict[int, bytes] = {}
    size = 0
    for index, image in enumerate(images):
        file = _file(image)
        if isinstance(file, InputError):
            results[index] = file
            continue
        if files and size + len(file) + _PART_OVERHEAD > most_bytes:
            yield files
            files, size = {}, 0
        files[index] = file
        size += len(file) + _PART_OVERHEAD
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


def _parse_results(answer: "Answer", count: int) -> list[Result]:
    """Parse an answer to several images. Raise ServiceError."""

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
