"""The settings of the service, from which options, variables and Ray's arguments come."""

import math
import re
import socket
import ssl
from dataclasses import Field as DataclassField
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from lensbox.common.detections import check_device
from lensbox.common.fields import described
from lensbox.common.files import open_regular

MEBIBYTE = 1 << 20
# PIL.Image.MAX_IMAGE_PIXELS: from here on Pillow warns of a decompression bomb.
PILLOW_MAX_PIXELS = 89_478_485
_ORIGINS = re.compile(
    r"\*|ORIGIN(,ORIGIN)*".replace("ORIGIN", r"https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:\d{1,5})?")
)
_DAY = 86_400  # seconds: far above any use, and below what timers overflow at

Bytes = Annotated[int, Field(ge=1, le=MEBIBYTE * MEBIBYTE)]
Count = Annotated[int, Field(ge=1, le=1 << 20)]
Seconds = Annotated[float, Field(gt=0, le=_DAY)]


@dataclass(frozen=True)
class Settings:
    """A field for each option of `lensbox serve`, and for each limit that is fixed but for tests.

    Sizes are in bytes, unless their names end in _mb, and times in seconds. docs/service.md has the reason of
    each default, docs/service/failures.md the memory that images take.

    Raise pydantic's ValidationError, of which `first_reason` makes a sentence.
    """

    artifact: Path | None = described(None, "one model: the file that `lensbox export` wrote")
    models: Path | None = described(
        None, "several models: a folder with NAME/VERSION.pt, .pt2, .onnx; the first is the default"
    )
    public_key: Path | None = described(None, "accept only artifacts signed with this key: a PEM file")
    ops: tuple[Path, ...] = described(
        (), "shared library with operators of the detector; its code runs with all your rights"
    )
    device: str = described("auto", "auto: cuda if there is a GPU, else cpu; several: cuda:0,cuda:1, or all")
    host: str = described("127.0.0.1", "address to listen on; 0.0.0.0 or :: for all networks")
    port: int = described(8000, "0 takes a free port and logs it", ge=0, le=65_535)
    tls_certificate: Path | None = described(None, "serve HTTPS with this certificate: a PEM file")
    tls_key: Path | None = described(None, "the key of --tls-certificate: a PEM file")
    api_keys_file: Path | None = described(None, "require one of the API keys in this file, one a line")
    admin_key_file: Path | None = described(
        None, "let the holder of the key in this file load and unload models"
    )
    cors_origins: str = described("", "origins whose web pages may call the service (CORS), or *")
    max_batch: int | None = described(
        None, "most images of one inference; default: 8 on CPUs, 64 on GPUs", ge=1, le=4096
    )
    max_body_mb: float = described(16.0, "largest image request, in MiB", gt=0, le=1 << 20)
    max_pixels: int = described(50_400_000, "most pixels of an image", ge=1, le=PILLOW_MAX_PIXELS)
    frontends: int | None = described(
        None, "processes that speak HTTP; default: 1 for every 2 CPUs beside a GPU, else 1", ge=1, le=256
    )
    answer_timeout: Seconds = described(30.0, "seconds from the end of a body to its answer")
    log_level: Literal["critical", "error", "warning", "info", "debug"] = described(
        "info", "info: each request"
    )
    log_format: Literal["text", "json"] = described("text", "json: one object per line")

    # No options: no operator would miss them.
    decode_threads: Count = 2  # images decoded at a time
    max_requests: Count = 64  # in progress at a time, in each front end: bounds memory and queues
    max_json_bytes: Bytes = 4 * MEBIBYTE
    max_boxes: int = 16_384  # of one request, with all images padded to the largest
    queue_bytes: Bytes = 512 * MEBIBYTE  # of the images that may wait for a model
    body_timeout: Seconds = 30.0  # for receiving a body: 16 MiB at 4.5 Mbit/s
    engine_timeout: float = 60.0  # after which a call of the model counts as stuck; 0: never
    shutdown_timeout: int = 30  # from SIGTERM until the process is killed
    shutdown_delay: float = 1.0  # after SIGTERM, in which requests are accepted and /readyz answers 503
    keep_alive_timeout: int = 75  # for which an idle connection stays open: longer than load balancers'

    def call_limit(self, loading: float) -> float:
        """Return the seconds after which a call of the model counts as stuck.

        loading: seconds for loading and warming up every batch size. A call may always take this long.
        """
        return max(self.engine_timeout, self.answer_timeout, loading) if self.engine_timeout else math.inf

    @cached_property
    def max_body_bytes(self) -> int:
        """The largest image request in bytes."""
        return int(self.max_body_mb * MEBIBYTE)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the certificate and key of HTTPS; None for HTTP. Raise OSError.

        A key with a password is refused: OpenSSL would ask for the password at the terminal.
        """

        def refuse_password() -> str:
            raise OSError("the key must have no password")

        if self.tls_certificate is None or self.tls_key is None:
            return None
        for path in (self.tls_certificate, self.tls_key):
            open_regular(path).close()  # each front end reads them
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.tls_certificate, self.tls_key, refuse_password)
        return context

    def url_of(self, listener: socket.socket) -> str:
        """Return the address of the service on a bound socket as a URL."""
        host, port = listener.getsockname()[:2]
        scheme = "http" if self.tls_certificate is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def __post_init__(self) -> None:
        for device in self.device.split(",") if self.device != "all" else ():
            check_device(device)
        if self.cors_origins and not _ORIGINS.fullmatch(self.cors_origins):
            rule = "*, or a comma-separated list of origins such as https://shop.example"
            raise ValueError(f"cors_origins must be {rule}, got {self.cors_origins!r}")
        if (self.artifact is None) == (self.models is None):
            given = "neither" if self.artifact is None else "both"
            raise ValueError(f"artifact or models must be given, got {given}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            given = "tls_key" if self.tls_certificate is None else "tls_certificate"
            raise ValueError(f"tls_certificate and tls_key must be given together, got only {given}")


def options() -> "dict[str, DataclassField[Any]]":
    """Return the fields that are options, by name."""
    return {one.name: one for one in fields(Settings) if isinstance(one.default, FieldInfo)}
