"""The client of a service."""

import json
import re
import threading
from collections.abc import Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit

from numpy.typing import ArrayLike

from lensbox.client.answers import ImageDetections, LossAnswer
from lensbox.client.errors import unexpected
from lensbox.client.evaluation import Evaluation, Targets, targets_json
from lensbox.client.image_bytes import Image, image_bytes
from lensbox.client.many import BATCH_SIZE, ManyImages
from lensbox.client.model import Limits, Model
from lensbox.common.errors import LensboxError

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
        if endpoint := re.search(r"/v1/(detect|evaluate|loss|model)/?$", url):
            raise ValueError(f"url must be that of the service alone, without {endpoint[0]}, got {url!r}")
        try:
            _ = urlsplit(url).port  # raises; the system would take 99999 modulo 65536
        except ValueError as error:
            raise ValueError(f"url must have a port from 0 to 65535, got {url!r}") from error
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
        self._limits: Limits | None = None
        self._limits_lock = threading.Lock()

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
        parameters = _parameters(score_threshold, iou_threshold, orientation)
        answer = self._connection.ask("POST", "/v1/detect", content=image_bytes(image), parameters=parameters)
        return answer.read(ImageDetections.from_json)

    def annotate(
        self,
        image: Image,
        *,
        file_format: Literal["png", "jpeg"] = "png",
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        orientation: Orientation | None = None,
    ) -> bytes:
        """An image with what is in it drawn on it, as a PNG or JPEG file; the rest is that of `detect`."""
        if file_format not in ("png", "jpeg"):
            raise ValueError(f"file_format must be 'png' or 'jpeg', got {file_format!r}")
        media_type = f"image/{file_format}"
        answer = self._connection.ask(
            "POST",
            "/v1/detect",
            content=image_bytes(image),
            parameters=_parameters(score_threshold, iou_threshold, orientation),
            accept=media_type,
        )
        if answer.media_type != media_type:
            raise unexpected(answer.content)
        return answer.content

    def detect_many(
        self,
        images: Iterable[Image],
        *,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        orientation: Orientation | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> Generator[ImageDetections | LensboxError, None, None]:
        """What is in each of many images, in their order, over several connections at once.

        images: each as for `detect`, taken from the iterable as they are needed. One that cannot be read or
        is not answered is the InputError or ServiceError that says why, and stops nothing. Closing the
        generator early asks for no more. batch_size: images of one request, at most: never more than the
        service takes, and fewer while its answers take long. With 1 each is sent by itself, as soon as there
        is a free connection. Raises ValueError.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        parameters = _parameters(score_threshold, iou_threshold, orientation)
        many = ManyImages(self._connection, parameters, batch_size, self._limits_of_service)
        return many.results(images, self._connections)

    def evaluate(
        self,
        images: Iterable[Image],
        targets: Iterable[Targets],
        *,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        match_iou: float | None = None,
        orientation: Orientation | None = None,
    ) -> Evaluation:
        """How well the detector does on images whose boxes are known, all in one request.

        images: each as for `detect`, as many as the service takes (`model().limits.max_images`): figures of
        several requests cannot be added up. targets: of each image the boxes that are in it, [n, 4] or
        `Target`s. match_iou: above 0 and at most 1; a detection hits a box of its class from this IoU on, 0.5
        where it is None. The rest, and what is raised, is that of `detect`.
        """
        parameters = _parameters(score_threshold, iou_threshold, orientation)
        if match_iou is not None:
            if not 0 < match_iou <= 1:  # true for NaN, too
                raise ValueError(f"match_iou must be above 0 and at most 1, got {match_iou:g}")
            parameters["match_iou"] = float(match_iou)
        files = [("image", image_bytes(image)) for image in images]
        boxes = [targets_json(of_image) for of_image in targets]
        if not files or len(files) != len(boxes):
            raise ValueError(
                "images and targets must be as many, and at least one, "
                f"got {len(files)} images and {len(boxes)} targets"
            )
        answer = self._connection.ask(
            "POST",
            "/v1/evaluate",
            files=files,
            fields={"targets": json.dumps(boxes)},
            parameters=parameters,
        )
        return answer.read(lambda document: Evaluation.from_json(document, answer.request_id))

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
        return self._connection.ask("POST", "/v1/loss", json=question).read(LossAnswer.from_json)

    def model(self) -> Model:
        """What runs there, and the limits of a request. Raises ServiceError."""
        return self._connection.ask("GET", "/v1/model").read(Model.from_json)

    def metadata(self) -> dict[str, Any]:
        """All that GET /v1/model tells of the artifact and the service. Raises ServiceError."""
        answer = self._connection.ask("GET", "/v1/model").json()
        if not isinstance(answer, dict) or "defaults" not in answer:
            raise unexpected(answer)
        return answer

    def alive(self) -> bool:
        """Whether the service answers at all, ready or not. Asked once."""
        return self._connection.status("/healthz") == 200

    def ready(self) -> bool:
        """Whether the service takes requests now; False too where there is none. Asked once."""
        return self._connection.status("/readyz") == 200

    def _limits_of_service(self) -> Limits:
        with self._limits_lock:
            if self._limits is None:
                self._limits = self.model().limits
            return self._limits


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
