"""The client of a service: its requests with retries, its answers and errors."""

import io
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import PIL.Image
from numpy.typing import ArrayLike
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict, Unpack

try:
    import httpx
    import tenacity
except ModuleNotFoundError as error:
    message = f"the Python package {error.name!r} is not installed: pip install 'lensbox[client]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from lensbox.common.detections import READ_DETECTIONS, ImageDetections, Number, numbers_of_json
from lensbox.common.errors import ExitCode, InputError, LensboxError, system_reason
from lensbox.common.fields import Fraction, Orientation, first_reason, plain_errors
from lensbox.common.files import read_regular
from lensbox.common.machine import package_version
from lensbox.common.pictures import (
    ColorOrder,
    ImageFile,
    Picture,
    check_color_order,
    content_of,
    picture_pixels,
    require_many,
    require_rgb,
)

Image = ImageFile | Picture
Boxes = ArrayLike | Sequence[ArrayLike]
Results = Generator[ImageDetections | LensboxError, None, None]
_Answer = TypeVar("_Answer")

# Statuses that concern one image and say nothing about the next.
_OF_ONE_IMAGE = frozenset({400, 408, 413, 415, 500, 504})
_FIRST_WAIT = 0.25  # least seconds before the second try; doubled with each
_LONGEST_WAIT = 60.0  # a longer Retry-After fails at once
_PIECE = 1 << 16  # bytes that are sent with one look at the clock
# UnicodeError: the system's error for an invalid host name.
_NO_ANSWER = (httpx.RequestError, UnicodeError)
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
_SHOWN = 200  # characters of an unexpected answer in a message


@dataclass(frozen=True)
class LossAnswer:
    """The GIoU loss of boxes.

    loss: mean of 1 - GIoU over the predictions with a target. slots: number of these. gradient: d loss / d
    predictions, nested like the predictions; None unless requested. Numbers that are not finite are NaN.
    """

    loss: Number
    slots: int
    gradient: Annotated[list[Any], BeforeValidator(numbers_of_json)] | None = None


@dataclass(eq=False)
class ServiceError(LensboxError):
    """The service refused a request, or there was no answer.

    detail: message for people. code: stable word of the problem document, such as "undecodable_image";
    "no_answer" without an answer, "unexpected_answer" if it is not a Lensbox service. status: HTTP status,
    None without an answer. request_id: ID of the request in the service's log. retry_after: seconds until a
    retry may succeed, None if it cannot.
    """

    detail: str
    code: str = "no_answer"
    status: int | None = None
    request_id: str | None = None
    retry_after: float | None = None

    exit_code = ExitCode.UNUSABLE

    def __str__(self) -> str:
        status = "" if self.status is None else f"{self.status} "
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.detail} ({status}{self.code}{request})"

    @property
    def is_of_one_image(self) -> bool:
        """Return whether the error concerns one image only, so that the next may succeed."""
        return self.status in _OF_ONE_IMAGE


class Parameters(TypedDict, total=False):
    """Parameters of a detection. None stands for the artifact's default.

    score_threshold, iou_threshold: 0 to 1. tiles: "auto", "SIZE" or "SIZE,OVERLAP" detects small objects in
    tiles of a large photograph.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # type: ignore[misc]

    score_threshold: Fraction | None
    iou_threshold: Fraction | None
    orientation: Orientation | None
    tiles: str | None


def _described(answer: dict[str, Any]) -> dict[str, Any]:
    if "defaults" not in answer:
        raise ValueError("an answer of /v1/model must have `defaults`")
    return answer


_READ_PARAMETERS = TypeAdapter(Parameters)
_READ_LOSS = TypeAdapter(LossAnswer)
_READ_METADATA = TypeAdapter(Annotated[dict[str, Any], AfterValidator(_described)])


@plain_errors
@pydantic_dataclass(eq=False, config=ConfigDict(extra="forbid"))
class Client:
    """A client of a Lensbox service. Thread-safe.

    url: of the service, such as "http://127.0.0.1:8000", with the path prefix of a proxy if there is one.
    api_key: sent as `Authorization: Bearer`. timeout: seconds for connecting to an address, and for a whole
    request with its answer; sent to the service, which drops late requests. retries: maximum number of
    retries after 503, 429 (after the seconds in `Retry-After`) or a broken connection. connections: maximum
    number of open connections, and of requests in flight. transport: httpx's.

    Connections are kept alive. Call `close`, or use the client as a context manager. Raise ValueError, and
    ServiceError for a URL or proxies in the environment that httpx cannot use.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: Annotated[float, Field(ge=0.001, le=86_400)] = 30.0
    _: KW_ONLY
    retries: Annotated[int, Field(ge=0, le=1000)] = 6
    connections: Annotated[int, Field(ge=1, le=1000)] = 8
    transport: Any = None

    def __post_init__(self) -> None:
        self._stopped = threading.Event()
        self._request = threading.local()  # `until`: when the request of this thread has to be answered
        if not re.match(r"https?://[^/]", self.url):
            raise ValueError(f"url must begin with http:// or https:// and a host, got {self.url!r}")
        if self.api_key is not None and not re.fullmatch(r"[!-~]+", self.api_key):
            raise ValueError("api_key must consist of visible ASCII characters")  # the message hides the key
        headers = {
            "User-Agent": f"lensbox-client/{package_version('lensbox')}",
            "X-Request-Timeout-Ms": str(round(1000 * self.timeout)),
            **({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}),
        }
        limits = httpx.Limits(max_connections=self.connections)
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=self.timeout,
                limits=limits,
                transport=self.transport,
            )
        except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
            raise ServiceError(
                f"httpx must be able to use the URL and the environment's proxies and certificates: {error}"
            ) from error

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def detect(
        self, image: Image, *, color_order: ColorOrder = "RGB", **parameters: Unpack[Parameters]
    ) -> ImageDetections:
        """Detect in one image.

        image: a path, the bytes of an image file, a file open in binary mode, a Pillow image, or an array,
        uint8 [H, W], [H, W, 3] (RGB) or [H, W, 4] (RGBA). Files are sent unchanged, pictures as PNG.
        color_order: "BGR" for arrays of OpenCV. parameters: see `Parameters`. Raise ServiceError, ValueError,
        TypeError, or OSError for an unreadable file.
        """
        query, file = _query(parameters), image_bytes(image, color_order)
        return self._ask(READ_DETECTIONS, "POST", "/v1/detect", content=file, params=query)

    def detect_many(
        self, images: Iterable[Image], *, color_order: ColorOrder = "RGB", **parameters: Unpack[Parameters]
    ) -> Results:
        """Detect in many images over all connections, one image per request; yield the results in order.

        images: see `detect`; read from the iterable as needed. An image that fails yields its InputError or
        ServiceError, and does not stop the next. Closing the generator sends no more requests. Raise
        ValueError, and TypeError for one image instead of many.
        """
        require_many(images, "images")
        check_color_order(color_order)
        _query(parameters)
        return self._results(images, {"color_order": color_order, **parameters})

    def loss(self, predictions: Boxes, targets: Boxes, *, gradient: bool = False) -> LossAnswer:
        """Compute the GIoU loss of boxes.

        predictions, targets: both [N, 4], or both lists of B arrays [n, 4] of any n; xyxy. Target i of an
        image belongs to prediction i; a target whose y2 is 0 is none. gradient: whether to return it, too.
        Raise ServiceError, TypeError, and ValueError for a number that is not finite.
        """
        question = {"predictions": predictions, "targets": targets, "gradient": gradient}
        body = json.dumps(question, default=_listed, allow_nan=False)
        return self._ask(_READ_LOSS, "POST", "/v1/loss", content=body)

    def metadata(self) -> dict[str, Any]:
        """Return the whole answer of GET /v1/model. Raise ServiceError."""
        return self._ask(_READ_METADATA, "GET", "/v1/model")

    def alive(self) -> bool:
        """Return whether the service answers, ready or not. Does not retry."""
        return self._is_ok("/healthz")

    def ready(self) -> bool:
        """Return whether the service takes requests now. Does not retry."""
        return self._is_ok("/readyz")

    def _results(self, images: Iterable[Image], arguments: Any) -> Results:
        """Yield a result per image, in order. Prepare as many images as there are connections."""
        client = copy(self)
        client._stopped = threading.Event()

        def result(image: Image) -> ImageDetections | LensboxError:
            try:
                return client.detect(image, **arguments)
            except LensboxError as error:
                return error
            except OSError as error:  # such as FileNotFoundError
                name = image if isinstance(image, str | Path) else "image"
                return InputError(f"{name} cannot be read: {system_reason(error)}")
            except (ValueError, TypeError) as error:
                return InputError(str(error))

        waiting: deque[Future[ImageDetections | LensboxError]] = deque()
        with ThreadPoolExecutor(self.connections, thread_name_prefix="lensbox-client") as pool:
            try:
                for image in images:
                    waiting.append(pool.submit(result, image))
                    if len(waiting) == 2 * self.connections:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                client._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _is_ok(self, path: str) -> bool:
        """Return whether GET `path` answers 200. Does not retry."""
        try:
            return self._answer("GET", path).status_code == 200
        except _NO_ANSWER:
            return False

    def _ask(self, read: TypeAdapter[_Answer], method: str, path: str, **request: Any) -> _Answer:
        """Send a request; return the successful answer as `read` reads it, or raise ServiceError.

        request: httpx's arguments. Retry after 503, 429 or a broken connection (all requests are idempotent):
        after the seconds in `Retry-After`, and an exponential back-off. Setting `_stopped` ends the retries.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_after_attempt(self.retries + 1),
            # Random: clients that were rejected together must not retry together.
            wait=tenacity.wait_exception(attrgetter("retry_after"))
            + tenacity.wait_random_exponential(2 * _FIRST_WAIT, _LONGEST_WAIT, min=_FIRST_WAIT),
            sleep=tenacity.sleep_using_event(self._stopped),
            reraise=True,
        )
        content: bytes = retrying(self._send, method, path, request)
        try:
            return read.validate_json(content)
        except ValidationError as error:
            text = content.decode("utf-8", "replace")[:_SHOWN]
            detail = f"the answer does not come from a Lensbox service: {text!r}"
            raise ServiceError(detail, "unexpected_answer", 200) from error

    def _send(self, method: str, path: str, request: Any) -> bytes:
        if self._stopped.is_set():
            raise ServiceError("the caller stopped before the retry")
        service = self._http.base_url
        try:
            response = self._answer(method, path, **request)
        except httpx.TimeoutException as error:
            raise ServiceError(f"{service} gave no answer within {self.timeout:g} seconds") from error
        except _NO_ANSWER as error:
            detail = f"{service} cannot be reached: {error or type(error).__name__}"
            raise ServiceError(detail, retry_after=0.0 if isinstance(error, _BROKEN) else None) from error
        if not response.is_success:
            raise _refusal(response)
        return response.content

    def _answer(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Return the whole answer to a request. Raise httpx's errors."""
        self._request.until = time.monotonic() + self.timeout
        return self._http.request(method, path, extensions={"trace": self._bound}, **request)

    def _bound(self, event: str, facts: dict[str, Any]) -> None:
        """Bound the reads and writes of a new connection by the time that their request has left.

        httpx, which calls this function at each event (its extension "trace"), bounds each read alone, and
        the head of an answer may take any number of them.
        """

        def in_time(call: Callable[..., Any]) -> Callable[..., Any]:
            def bounded(*arguments: Any, **options: Any) -> Any:
                if (left := self._request.until - time.monotonic()) <= 0:
                    raise httpx.ReadTimeout("")
                return call(*arguments, **{**options, "timeout": left})

            return bounded

        def write(content: bytes, timeout: float | None = None) -> None:
            for begin in range(0, len(content), _PIECE):
                send(content[begin : begin + _PIECE])

        if event.endswith((".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")):
            stream = facts["return_value"]
            send = in_time(stream.write)
            stream.read, stream.start_tls = in_time(stream.read), in_time(stream.start_tls)
            stream.write = write


def image_bytes(image: Image, color_order: ColorOrder = "RGB") -> bytes:
    """Return the bytes of an image file: a PNG file for Pillow images and arrays, else the file itself.

    image: a path, what `content_of` takes, or what `picture_pixels` takes. Raise TypeError, ValueError, or
    OSError for an unreadable file.
    """
    if isinstance(image, np.ndarray | PIL.Image.Image):
        buffer = io.BytesIO()
        # Level 1: compressing at higher levels usually takes longer than the network saves.
        PIL.Image.fromarray(picture_pixels(image, "image", color_order)).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()
    require_rgb("image", color_order)
    content = content_of(image, "image")
    return read_regular(cast(str, image)) if content is None else content


def _listed(boxes: Any) -> Any:
    """Return an array of boxes as lists. Raise TypeError."""
    if not hasattr(boxes, "tolist"):
        raise TypeError(f"predictions and targets must be lists or arrays, got {type(boxes).__name__}")
    return boxes.tolist()


def _query(parameters: Parameters) -> dict[str, Any]:
    """Return the parameters of a request without a None. Raise ValueError."""
    try:
        given = _READ_PARAMETERS.validate_python(parameters)
    except ValidationError as error:
        raise ValueError(first_reason(error)) from None
    return {name: value for name, value in given.items() if value is not None}


def _may_pass(error: BaseException) -> bool:
    wait = error.retry_after if isinstance(error, ServiceError) else None
    return wait is not None and wait <= _LONGEST_WAIT


def _refusal(response: httpx.Response) -> ServiceError:
    status, asked = response.status_code, response.headers.get("Retry-After", "")
    seconds = float(asked) if asked.isdecimal() and asked.isascii() else 0.0
    try:
        problem = json.loads(response.content)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):  # from a proxy
        text = " ".join(response.content.decode("utf-8", "replace").split())[:_SHOWN]
        code, detail = "unexpected_answer", f"the answer was {status} {response.reason_phrase}: {text!r}"
    request_id = response.headers.get("X-Request-ID")
    return ServiceError(detail, code, status, request_id, seconds if status in (429, 503) else None)
