"""Every limit and timeout of the service, with its bounds."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lensbox.common.detect_options import Decode, check_decode

MEBIBYTE = 1 << 20
# PIL.Image.MAX_IMAGE_PIXELS: from here on Pillow warns of a decompression bomb.
PILLOW_MAX_PIXELS = 89_478_485
DEVICES = ("auto", "cpu", "cuda")
PLACES_ON_CPU, PLACES_ON_GPU = 64, 512  # eight batches
_NUMBERED_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:\d{1,5})?")
_URL = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")
_DAY = 86_400  # seconds: far above any use, and below what timers overflow at


def _number(default: float | None, most: int, summary: str, least: int = 1) -> Any:
    """Return a field that holds a number from `least` to `most`. summary: help text of its option."""
    return field(default=default, metadata={"least": least, "most": most, "summary": summary})


def _seconds(default: float, summary: str) -> Any:
    """Return a field that holds a time above 0, at most a day."""
    return field(default=default, metadata={"above": 0, "most": _DAY, "summary": summary})


def _text(summary: str, metavar: str = "NAMES") -> Any:
    """Return a field that holds text, "" by default."""
    return field(default="", metadata={"metavar": metavar, "summary": summary})


def _file(summary: str) -> dict[str, Any]:
    """Return the metadata of a field that holds the path of a file."""
    return {"is_file": True, "summary": summary}


@dataclass(frozen=True)
class Settings:
    """Settings of the service: a field for each option of `lensbox serve`.

    Sizes are in bytes, times in seconds. docs/service.md has the reason of each default.

    The images of all requests take at most the sum of these numbers of bytes:
    `(max_requests + 4 * decode_threads) * max_body_bytes` for copies of files;
    `(20 * decode_threads + 8) * max_pixels` for decoding (WebP: 16 bytes per pixel, decoded image: 4);
    `4 * queue_bytes` for queued images, the current batch, and twice that size for the model's first step;
    and the answers that clients have not read yet.

    Raises ValueError naming the setting, its rule and the value received.
    """

    artifact: Path | None = field(
        default=None, metadata=_file("one model: the file that `lensbox export` wrote")
    )
    models: Path | None = field(
        default=None, metadata=_file("several models: a folder with NAME/VERSION.pt, .pt2 or .onnx")
    )
    default_model: str = _text("the model of /v1/detect; default: the first by name", "NAME")
    watch: bool = field(
        default=False, metadata={"summary": "load newer and changed files without being asked"}
    )
    swap: str = field(
        default="beside",
        metadata={
            "metavar": "[beside|in-place]",
            "summary": "start a new version beside the old one, or end the old one first",
        },
    )
    device: str = field(default="auto", metadata={"summary": "auto: cuda if torch finds a GPU, else cpu"})
    devices: str = _text("one engine per device, instead of --device: all, or cuda:0,cuda:1")
    frontends: int | None = _number(
        None, 256, "processes that speak HTTP; None: 0 on a CPU, 3 for every 4 CPUs beside a GPU", least=0
    )
    busy_poll: int | None = _number(
        None, 100, "milliseconds for which an idle process busy-polls before it sleeps", least=0
    )
    public_key: Path | None = field(
        default=None, metadata=_file("accept only artifacts signed with this key: a PEM file")
    )
    ops: tuple[Path, ...] = field(
        default=(), metadata={"summary": "shared libraries with operators of the detector"}
    )
    api_keys_file: Path | None = field(
        default=None, metadata=_file("require one of the API keys in this file, one a line")
    )
    admin_key_file: Path | None = field(
        default=None, metadata=_file("let the holder of the key in this file load and unload models")
    )
    cors_origins: str = _text("origins whose web pages may call the service (CORS), or *", "ORIGINS")
    tls_certificate: Path | None = field(
        default=None, metadata=_file("serve HTTPS with this certificate: a PEM file")
    )
    tls_key: Path | None = field(default=None, metadata=_file("the key of --tls-certificate: a PEM file"))
    otel_endpoint: str = _text("send traces to this OpenTelemetry collector", "URL")
    no_page: bool = field(default=False, metadata={"summary": "disable the web pages / and /docs"})
    threads: int | None = _number(None, 1024, "CPU threads of one inference; None leaves the choice to torch")
    decode_threads: int = _number(2, 1024, "images decoded at a time")
    decode: Decode = field(
        default="auto",
        metadata={
            "metavar": "[auto|cpu|gpu]",
            "summary": "decode JPEG files of concurrent requests on the GPU; auto: where the GPU can",
        },
    )
    max_body_bytes: int = _number(16 * MEBIBYTE, MEBIBYTE * MEBIBYTE, "largest image request")
    max_json_bytes: int = _number(4 * MEBIBYTE, MEBIBYTE * MEBIBYTE, "largest JSON request")
    max_pixels: int = _number(50_400_000, PILLOW_MAX_PIXELS, "most pixels of an image")
    max_boxes: int = _number(16_384, 1 << 24, "most boxes, with all images padded to the largest")
    max_requests: int = _number(64, 1 << 20, "requests in progress at a time")
    max_connections: int = _number(1000, 1 << 20, "connections; above this number, POST requests get 503")
    max_batch: int | None = _number(None, 4096, "most images of one inference; None: 8 on CPUs, 64 on GPUs")
    max_delay: float = _number(
        0.0, 1000, "milliseconds to wait for more images before a partial batch runs", least=0
    )
    queue_size: int | None = _number(
        None, 1 << 20, "jobs that may wait for the model; None: 64 on CPUs, 512 on GPUs"
    )
    queue_bytes: int = _number(
        512 * MEBIBYTE, MEBIBYTE * MEBIBYTE, "size of the images that may wait for the model"
    )
    body_timeout: float = _seconds(30.0, "seconds for receiving a body")
    answer_timeout: float = _seconds(30.0, "seconds from the end of a body to its answer")
    engine_timeout: float = _number(
        60.0, 3600, "seconds after which a call of the model counts as stuck; 0: never", least=0
    )
    shutdown_delay: float = _number(
        1.0, 3600, "seconds after SIGTERM in which requests are still accepted; /readyz answers 503", least=0
    )
    shutdown_timeout: int = _number(30, _DAY, "seconds from SIGTERM until the process is killed")
    keep_alive_timeout: int = _number(75, _DAY, "seconds that an idle connection stays open")

    def call_limit(self, loading: float) -> float:
        """Return the seconds after which a call of the model counts as stuck.

        loading: seconds for loading and warming up every batch size. A call may always take this long.
        """
        return max(self.engine_timeout, self.answer_timeout, loading) if self.engine_timeout else math.inf

    @property
    def places(self) -> int:
        """The number of jobs that may wait: `queue_size`, which `lensbox serve` has set for the device."""
        return self.queue_size or PLACES_ON_CPU

    @property
    def scheme(self) -> str:
        """The scheme of the service's URL."""
        return "http" if self.tls_certificate is None else "https"

    def __post_init__(self) -> None:
        if self.device not in DEVICES and not _NUMBERED_DEVICE.fullmatch(self.device):
            raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {self.device!r}")
        if self.devices not in ("", "all"):
            for name in self.devices.split(","):
                if not _NUMBERED_DEVICE.fullmatch(name):
                    rule = "all, or a comma-separated list of cpu, cuda and cuda:N"
                    raise ValueError(f"devices must be {rule}, got {self.devices!r}")
        if self.swap not in ("beside", "in-place"):
            raise ValueError(f"swap must be beside or in-place, got {self.swap!r}")
        if (self.artifact is None) == (self.models is None):
            given = "neither" if self.artifact is None else "both"
            raise ValueError(f"artifact or models must be given, got {given}")
        check_decode(self.decode)
        for origin in self.cors_origins.split(",") if self.cors_origins not in ("", "*") else ():
            if not _ORIGIN.fullmatch(origin):
                rule = "*, or a comma-separated list of origins such as https://shop.example"
                raise ValueError(f"cors_origins must be {rule}, got {self.cors_origins!r}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            given = "tls_key" if self.tls_certificate is None else "tls_certificate"
            raise ValueError(f"tls_certificate and tls_key must be given together, got only {given}")
        if self.otel_endpoint and not _URL.fullmatch(self.otel_endpoint):
            rule = "an http or https URL without a query"
            raise ValueError(f"otel_endpoint must be {rule}, got {self.otel_endpoint!r}")
        for setting in fields(self):
            value = getattr(self, setting.name)
            if "most" in setting.metadata and value is not None:
                _check_number(setting.name, value, setting.metadata)


def _check_number(name: str, value: float, bounds: Mapping[str, Any]) -> None:
    most = bounds["most"]
    if "above" in bounds:
        if not bounds["above"] < value <= most:  # written so that NaN fails
            raise ValueError(f"{name} must be above {bounds['above']} and at most {most}, got {value}")
    elif not value >= bounds["least"]:  # written so that NaN fails
        raise ValueError(f"{name} must be at least {bounds['least']}, got {value}")
    elif value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")
