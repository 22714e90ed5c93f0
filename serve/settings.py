"""Every limit and time-out of the service, with its bounds and its reason."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lensbox.serve.url_rules import UrlRules

MEBIBYTE = 1 << 20
PILLOW_MAX_PIXELS = (
    89_478_485  # PIL.Image.MAX_IMAGE_PIXELS: from here on Pillow warns of a decompression bomb
)
DEVICES = ("auto", "cpu", "cuda")
_NUMBERED_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:\d{1,5})?")
_URL = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")
_DAY = 86_400  # seconds: far above any use, and below what timers overflow at


def _count(default: int | None, most: int, summary: str) -> Any:
    """A field that holds a whole number from 1 to `most`. summary: its line in `lensbox serve --help`."""
    return field(default=default, metadata={"least": 1, "most": most, "summary": summary})


def _seconds(default: float, summary: str) -> Any:
    """A field that holds a time above 0, at most a day."""
    return field(default=default, metadata={"above": 0, "most": _DAY, "summary": summary})


def _rate(default: float, summary: str) -> Any:
    """A field that holds a number a second, 0 for none, and at most a million."""
    return field(default=default, metadata={"least": 0, "most": 1_000_000, "summary": summary})


def _delay(default: float, summary: str) -> Any:
    """A field that holds a time from 0 to an hour."""
    return field(default=default, metadata={"least": 0, "most": 3600, "summary": summary})


def _milliseconds(default: float, summary: str) -> Any:
    """A field that holds a time from 0 to a second."""
    return field(default=default, metadata={"least": 0, "most": 1000, "summary": summary})


@dataclass(frozen=True)
class Settings:
    """What decides how the service behaves. Sizes are in bytes, times in seconds.

    Memory that the images of requests can take is bounded by
    `(max_requests + 4 * decode_threads) * max_body_bytes`: copies of files,
    `(20 * decode_threads + 8) * max_pixels`: WebP, the hungriest decoder, takes 16 bytes a pixel, beside the
    4 of a finished image, one of which may wait though it is larger than `queue_bytes`;
    `4 * queue_bytes`: what waits, what is computed, and twice as much for the model's first step; and 50 MB
    of each picture with boxes that a client is slow to take, at the very most: noise as PNG.

    Raises ValueError naming the setting, its rule and the value received.
    """

    artifact: Path = field(metadata={"summary": "the file that `lensbox export` wrote"})
    """The artifact."""

    device: str = field(default="auto", metadata={"summary": "auto: cuda where torch sees a GPU"})
    """"cpu", "cuda", "cuda:1", or "auto": CUDA where torch sees a GPU."""

    devices: str = field(
        default="", metadata={"summary": "an engine each, instead of --device: all, or cuda:0,cuda:1"}
    )
    """Devices with commas between them, "all" for every GPU, or "" for `device` alone. Each has an
    engine, and a request goes to the one with the fewest."""

    frontends: int | None = field(
        default=None,
        metadata={"least": 0, "most": 256, "summary": "processes that speak HTTP; None: 0 on a CPU"},
    )
    """Processes that speak HTTP and decode images, beside one for each engine. 0: all in one process, the
    default on a CPU. None on a GPU: three for every four CPUs, 12 at most."""

    busy_poll: int | None = field(
        default=None,
        metadata={
            "least": 0,
            "most": 100,
            "summary": "milliseconds that processes wait for each other awake",
        },
    )
    """Milliseconds for which an engine without jobs, and a front end that waits for its one job, stay awake,
    as long as waits are shorter than that: an answer comes sooner by what waking up takes, for a CPU that is
    busy. 0: never. None: 4 where all devices are GPUs and there are more CPUs than processes."""

    public_key: Path | None = field(
        default=None,
        metadata={"is_file": True, "summary": "whose signature the artifact must have: a PEM file"},
    )
    """An Ed25519 public key. Then only an artifact that its owner signed (`lensbox sign`) is loaded."""

    api_keys_file: Path | None = field(
        default=None,
        metadata={"is_file": True, "summary": "names and keys of those who may ask; read again on change"},
    )
    """A line for each key: a name, and the key or its hash. Without a file, whoever can connect may ask."""

    rate_limit: float = _rate(0.0, "requests a second of each key, or without keys of each address; 0: any")
    """Requests a second that each key may make, all front ends together; without `api_keys_file`, each IPv4
    address or IPv6 network of 64 bits. Probes and the page are not counted. 0 is no limit."""

    rate_burst: int | None = _count(None, 1_000_000, "requests at once within --rate-limit; None: a second's")
    """Requests that may come at once, after a pause. None: as many as in a second, at least one."""

    cors_origins: str = field(
        default="", metadata={"metavar": "ORIGINS", "summary": "pages elsewhere whose scripts may ask, or *"}
    )
    """Origins, with commas between them, whose scripts browsers let read the answers, such as
    `https://shop.example`; "*" for all. "": only those of the service's own page."""

    tls_certificate: Path | None = field(
        default=None, metadata={"is_file": True, "summary": "speak HTTPS, with this certificate: a PEM file"}
    )
    """The certificate and those between it and its root. Without it the service speaks HTTP."""

    tls_key: Path | None = field(
        default=None, metadata={"is_file": True, "summary": "the key of --tls-certificate: a PEM file"}
    )
    """The certificate's private key, without a password."""

    otel_endpoint: str = field(
        default="", metadata={"metavar": "URL", "summary": "send traces to this OpenTelemetry collector"}
    )
    """Where an OTLP collector takes HTTP, such as `http://collector:4318`. "": what the environment says in
    OTEL_EXPORTER_OTLP_ENDPOINT, else no traces."""

    no_page: bool = field(default=False, metadata={"summary": "no page for people at /"})
    """Answers 404 at /, where there is a page for browsers otherwise."""

    threads: int | None = _count(None, 1024, "CPU threads of one inference; None leaves the choice to torch")
    """CPU threads of one inference; None leaves the choice to torch (one for each physical core)."""

    decode_threads: int = _count(2, 1024, "images decoded at a time")
    """Images decoded at a time. Decoding releases the GIL; two feed a fast model without taking its cores."""

    max_body_bytes: int = _count(16 * MEBIBYTE, MEBIBYTE * MEBIBYTE, "largest image request")
    """Largest request body. A 50-megapixel phone JPEG has 10 to 15 MiB."""

    max_json_bytes: int = _count(4 * MEBIBYTE, MEBIBYTE * MEBIBYTE, "largest JSON request")
    """Largest JSON body. Parsed it takes up to 25 times as much. 2 * 16,384 boxes at full precision fit."""

    max_pixels: int = _count(50_400_000, PILLOW_MAX_PIXELS, "most pixels of an image")
    """Most pixels (width * height) of an image, read from its header before it is decoded: a PNG of a few
    kilobytes can claim billions. 50.3 million is the largest size that current phones store by default."""

    max_boxes: int = _count(16_384, 1 << 24, "most boxes in predictions, and in targets")
    """Most boxes in each of `predictions` and `targets`, and most images: 64 images of 256 slots."""

    max_images: int = _count(32, 1024, "most images of one request")
    """Most images of one request to /v1. They share `max_body_bytes`."""

    url_allow: str = field(
        default="", metadata={"summary": "hosts and URL prefixes that images may be fetched from; none"}
    )
    """Host names, which stand for https://HOST/, and prefixes such as https://HOST/PATH, with commas between
    them. Only from there are images fetched that clients name by `url`; from nowhere by default."""

    url_timeout: float = _seconds(5.0, "seconds for fetching one image")
    """For fetching one image, from resolving its host to its last byte."""

    max_requests: int = _count(64, 1 << 20, "requests in progress at a time")
    """Requests with a body in progress at a time, from the first byte to the answer: bounds the memory that
    bodies take, and the damage that slow clients do."""

    max_connections: int = _count(1000, 1 << 20, "open connections; the longest idle ones give way")
    """Connections open at a time, fewer where the process may not open as many files. Beyond it the one that
    has been idle longest is closed: idle clients keep nobody out."""

    max_client_connections: int | None = _count(None, 1 << 20, "open connections of a client; None: no limit")
    """Connections that one client may have open in each front end, where a client is an IPv4 address or an
    IPv6 network of 64 bits. None: as many as all of them. Behind a balancer all connections are those of
    one."""

    max_batch: int | None = _count(None, 4096, "most images of one inference; None: 8 on CPUs, 64 on GPUs")
    """Most images that are computed together. None: 8 on a CPU, where more of them leave the caches, and 64
    on a GPU."""

    max_delay: float = _milliseconds(0.0, "milliseconds for which an image may wait for others")
    """How long, in milliseconds, an image may wait for others while the model has nothing to do. At 0 it
    never does: what comes while the model is busy makes the next batch."""

    queue_size: int = _count(64, 1 << 20, "jobs that may wait for the model")
    """Jobs that may wait for the model, most of them with a decoded image. The next request is refused with
    503, so that a balancer tries another instance. As many as `max_requests`, the limit that requests of one
    image meet first."""

    queue_bytes: int = _count(512 * MEBIBYTE, MEBIBYTE * MEBIBYTE, "images that may wait for the model")
    """Bytes of the images that may wait for the model. A larger image has its place when no other waits."""

    header_timeout: float = _seconds(10.0, "seconds for receiving a request's head")
    """For receiving the head of a request, from its first byte or the connection's beginning. It is one
    packet from a client that means well, and without this limit each connection could be held with a byte at
    times."""

    body_timeout: float = _seconds(30.0, "seconds for receiving a body")
    """For receiving a whole body: 16 MiB in 30 s is 4.5 Mbit/s, a slow phone uplink."""

    send_timeout: float = _seconds(60.0, "seconds in which a client takes an answer")
    """For sending an answer that the network's buffers do not take at once, 64 MiB at most: 9 Mbit/s. Until
    it is sent it takes memory."""

    answer_timeout: float = _seconds(30.0, "seconds from the end of a body to its answer")
    """From the end of a body to its answer. Only a stuck device takes that long. A client that has less time
    says so in X-Request-Timeout-Ms."""

    engine_timeout: float = _delay(60.0, "seconds of one call of the model before it is given up; 0: never")
    """For one call of the model, a batch: `call_limit` says when it is longer. A call that never returns, as
    on a GPU that is gone, would leave the service ready and answering nothing but 504. 0: never."""

    shutdown_delay: float = _delay(1.0, "seconds after SIGTERM in which only /readyz says no")
    """How long after SIGTERM requests are still accepted, while /readyz already says no, so that a balancer
    learns of it first: a little more than its interval. At most a quarter of `shutdown_timeout`."""

    shutdown_timeout: int = _count(30, _DAY, "seconds after SIGTERM in which the process ends")
    """How long after SIGTERM the process is gone; requests in progress get all of it but the last second. The
    grace period of Kubernetes by default."""

    keep_alive_timeout: int = _count(75, _DAY, "seconds that an idle connection stays open")
    """How long an idle connection stays open: longer than the 60 s after which common load balancers drop
    theirs, so that they never send a request down a connection that is just being closed."""

    def call_limit(self, loading: float) -> float:
        """Seconds that one call of the model may take before it counts as one that never returns.

        Nobody waits for one that takes longer than `answer_timeout`; on a slow machine it may take as long as
        `loading` all the same, in which the model was called with batches of every size.
        """
        return max(self.engine_timeout, self.answer_timeout, loading) if self.engine_timeout else math.inf

    @property
    def scheme(self) -> str:
        """Of the service's URL."""
        return "http" if self.tls_certificate is None else "https"

    def __post_init__(self) -> None:
        if self.device not in DEVICES and not _NUMBERED_DEVICE.fullmatch(self.device):
            raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {self.device!r}")
        if self.devices not in ("", "all"):
            for name in self.devices.split(","):
                if not _NUMBERED_DEVICE.fullmatch(name):
                    rule = "all, or cpu, cuda and cuda:N with commas between them"
                    raise ValueError(f"devices must be {rule}, got {self.devices!r}")
        for origin in self.cors_origins.split(",") if self.cors_origins not in ("", "*") else ():
            if not _ORIGIN.fullmatch(origin):
                rule = "*, or such as https://shop.example with commas between them"
                raise ValueError(f"cors_origins must be {rule}, got {self.cors_origins!r}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            given = "tls_key" if self.tls_certificate is None else "tls_certificate"
            raise ValueError(f"tls_certificate and tls_key must come together, got {given} alone")
        if self.otel_endpoint and not _URL.fullmatch(self.otel_endpoint):
            rule = "an http or https URL without a query"
            raise ValueError(f"otel_endpoint must be {rule}, got {self.otel_endpoint!r}")
        try:
            UrlRules(self.url_allow)
        except ValueError as error:
            raise ValueError(f"url_allow must be {error}") from None
        for setting in fields(self):
            value = getattr(self, setting.name)
            if "most" in setting.metadata and value is not None:
                _check_number(setting.name, value, setting.metadata)
        if self.rate_burst is not None and not self.rate_limit:
            raise ValueError(f"rate_burst must come with rate_limit, got {self.rate_burst} alone")


def _check_number(name: str, value: float, bounds: Mapping[str, Any]) -> None:
    most = bounds["most"]
    if "above" in bounds:
        if not bounds["above"] < value <= most:  # written so that NaN fails
            raise ValueError(f"{name} must be above {bounds['above']} and at most {most}, got {value}")
    elif not value >= bounds["least"]:  # written so that NaN fails
        raise ValueError(f"{name} must be at least {bounds['least']}, got {value}")
    elif value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")
