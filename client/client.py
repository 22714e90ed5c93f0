"""The client of a service."""

import re
import threading
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal

from numpy.typing import ArrayLike

from lensbox.client.answers import ImageDetections, LossAnswer
from lensbox.client.errors import unexpected
from lensbox.client.image_bytes import Image, image_bytes
from lensbox.errors import InputError, LensboxError

Orientation = Literal["exif", "stored"]
Parameters = dict[str, float | str]
Boxes = ArrayLike | Sequence[ArrayLike]


class Client:
    """Asks a Lensbox service. Its methods may be called from several threads at once.

    url: of the service, such as "http://127.0.0.1:8000", with a path where a proxy has it below one.
    api_key: sent as `Authorization: Bearer`. timeout: seconds for connecting and for an answer; the service
    is told, and computes nothing that nobody waits for any more. retries: how often a request is sent again
    that the service had no time for (503, 429), after the seconds that it asks for, or whose connection
    broke. connections: how many are open at most.

    Connections stay open between requests. Close it, or use it as a context manager. Raises ValueError, and
    ModuleNotFoundError where httpx is not installed.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout: float = 30.0,
        *,
        retries: int = 6,
        connections: int = 8,
        transport: Any = None,
    ) -> None:
        if not re.match(r"https?://[^/]", url):
            raise ValueError(f"url must begin with http:// or https:// and a host, got {url!r}")
        if api_key is not None and not re.fullmatch(r"[!-~]+", api_key):
            raise ValueError("api_key must be of visible ASCII characters")  # and is not shown
        if not 0.001 <= timeout <= 86_400:  # false for NaN
            raise ValueError(f"timeout must be between 0.001 and 86400 seconds, got {timeout}")
        if retries < 0:
            raise ValueError(f"retries must be at least 0, got {retries}")
        if connections < 1:
            raise ValueError(f"connections must be at least 1, got {connections}")
        try:
            from lensbox.client.connection import Connection
        except ModuleNotFoundError as error:
            if error.name != "httpx":
                raise
            message = "the Python package 'httpx' is not installed: pip install 'lensbox[client]'"
            raise ModuleNotFoundError(message, name="httpx") from error
        self._connection = Connection(url, api_key, timeout, retries, connections, transport)
        self._connections = connections

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; the client is of no more use."""
        self._connection.close()

    def detect(
        self,
        image: Image,
        *,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        orientation: Orientation | None = None,
    ) -> ImageDetections:
        """What is in one image.

        image: a path, the bytes of an image file, a picture of Pillow's, or uint8 [H, W], [H, W, 3] (RGB) or
        [H, W, 4] (RGBA). Files are sent as they are; the others as PNG. Thresholds, between 0 and 1, and
        orientation, "exif" or "stored", are the artifact's where they are None. Raises ServiceError,
        ValueError, TypeError, and OSError for a file that cannot be read.
        """
        return self._detect(image, _parameters(score_threshold, iou_threshold, orientation), None)

    def detect_many(
        self,
        images: Iterable[Image],
        *,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        orientation: Orientation | None = None,
    ) -> Generator[ImageDetections | LensboxError, None, None]:
        """What is in each of many images, in their order, over several connections at once.

        images: each as for `detect`, taken from the iterable as they are needed. One that cannot be read or
        is not answered is the InputError or ServiceError that says why, and stops nothing. Closing the
        generator early asks for no more. Raises ValueError.
        """
        return self._detect_many(images, _parameters(score_threshold, iou_threshold, orientation))

    def loss(
        self,
        predictions: Boxes,
        targets: Boxes,
        *,
        weights: Boxes | None = None,
        per_image: bool = False,
        gradient: bool = False,
    ) -> LossAnswer:
        """The GIoU loss of boxes.

        predictions, targets: both [N, 4], both [B, N, 4], or lists of B arrays [n, 4] of any n, where the
        first target of an image belongs to its first prediction, and so on; xyxy. A target whose y2 is 0 is
        padding. weights: of each target, or of each image. per_image, gradient: whether to answer these, too.
        Raises ServiceError.
        """
        question = {"predictions": _nested(predictions), "targets": _nested(targets)}
        if weights is not None:
            question["weights"] = _nested(weights)
        asked = {"per_image": per_image, "gradient": gradient}
        question |= {name: True for name, wanted in asked.items() if wanted}
        answer = self._connection.ask("POST", "/v1/loss", json=question)
        try:
            return LossAnswer.from_json(answer)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise unexpected(answer) from error

    def metadata(self) -> dict[str, Any]:
        """What GET /v1/model tells of the artifact and the service. Raises ServiceError."""
        answer = self._connection.ask("GET", "/v1/model")
        if not isinstance(answer, dict) or "defaults" not in answer:
            raise unexpected(answer)
        return answer

    def ready(self) -> bool:
        """Whether the service takes requests now; False too where there is none. Asked once."""
        return self._connection.status("/readyz") == 200

    def _detect(
        self, image: Image, parameters: Parameters, stopped: threading.Event | None
    ) -> ImageDetections:
        answer = self._connection.ask(
            "POST", "/v1/detect", stopped, content=image_bytes(image), parameters=parameters
        )
        try:
            return ImageDetections.from_json(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise unexpected(answer) from error

    def _detect_many(
        self, images: Iterable[Image], parameters: Parameters
    ) -> Generator[ImageDetections | LensboxError, None, None]:
        stopped = threading.Event()

        def result(image: Image) -> ImageDetections | LensboxError:
            try:
                return self._detect(image, parameters, stopped)
            except LensboxError as error:
                return error
            except OSError as error:  # such as FileNotFoundError
                return InputError(f"{error.filename} cannot be read: {error.strerror}")
            except (ValueError, TypeError) as error:
                return InputError(str(error))

        waiting: deque[Future[ImageDetections | LensboxError]] = deque()
        with ThreadPoolExecutor(self._connections, thread_name_prefix="lensbox-client") as pool:
            try:
                for image in images:
                    waiting.append(pool.submit(result, image))
                    # As many again are ready to be sent while the first answer is awaited.
                    if len(waiting) == 2 * self._connections:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)


def _nested(values: Any) -> Any:
    """Lists of numbers, of arrays and lists of arrays, which may differ in length."""
    if hasattr(values, "tolist"):
        return values.tolist()
    return [_nested(value) for value in values] if isinstance(values, list | tuple) else values


def _parameters(
    score_threshold: float | None, iou_threshold: float | None, orientation: Orientation | None
) -> Parameters:
    """Those that are not None, as query parameters."""
    parameters: Parameters = {}
    for name, value in (("score_threshold", score_threshold), ("iou_threshold", iou_threshold)):
        if value is not None:
            if not 0 <= value <= 1:  # true for NaN, too
                raise ValueError(f"{name} must be between 0 and 1, got {value:g}")
            parameters[name] = float(value)
    if orientation is not None:
        if orientation not in ("exif", "stored"):
            raise ValueError(f"orientation must be 'exif' or 'stored', got {orientation!r}")
        parameters["orientation"] = orientation
    return parameters
