"""Every limit and time-out of the service, with its reason."""

from dataclasses import dataclass, fields
from pathlib import Path

MEBIBYTE = 1 << 20
PILLOW_MAX_PIXELS = (
    89_478_485  # PIL.Image.MAX_IMAGE_PIXELS: from here on Pillow warns of a decompression bomb
)
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Settings:
    """What decides how the service behaves. Sizes are in bytes, times in seconds.

    Memory that the images of requests can take is bounded by
    `(max_requests + 4 * decode_threads) * max_body_bytes`: copies of files, and
    `(20 * decode_threads + 4 * queue_size + 12) * max_pixels`: WebP, the hungriest decoder, takes 16 bytes a
    pixel, beside the 4 of a finished image; the model's first step takes 8, beside 4.

    Raises ValueError naming the setting, its rule and the value received.
    """

    artifact: Path
    """The artifact that `lensbox export` wrote."""

    device: str = "auto"
    """"cpu", "cuda", or "auto": CUDA where torch sees a GPU. CUDA_VISIBLE_DEVICES chooses among several."""

    threads: int | None = None
    """CPU threads of one inference; None leaves the choice to torch (one for each physical core)."""

    decode_threads: int = 2
    """Images decoded at a time. Decoding releases the GIL; two feed a fast model without taking its cores."""

    max_body_bytes: int = 16 * MEBIBYTE
    """Largest request body. A 50-megapixel phone JPEG has 10 to 15 MiB."""

    max_json_bytes: int = 4 * MEBIBYTE
    """Largest JSON body. Parsed it takes up to 25 times as much. 2 * 16,384 boxes at full precision fit."""

    max_pixels: int = 50_400_000
    """Most pixels (width * height) of an image, read from its header before it is decoded: a PNG of a few
    kilobytes can claim billions. 50.3 million is the largest size that current phones store by default."""

    max_boxes: int = 16_384
    """Most boxes in each of `predictions` and `targets`: 64 images of 256 slots."""

    max_requests: int = 64
    """Requests with a body in progress at a time, from the first byte to the answer: bounds the memory that
    bodies take, and the damage that slow clients do."""

    queue_size: int = 16
    """Decoded images that may wait for the model. More would only wait longer: at 30 ms each the last of 16
    waits half a second. The next request is refused with 429, so that a balancer tries another instance."""

    body_timeout: float = 30.0
    """For receiving a whole body: 16 MiB in 30 s is 4.5 Mbit/s, a slow phone uplink."""

    answer_timeout: float = 30.0
    """For decoding, and again for waiting and inference. Only a stuck device takes that long."""

    shutdown_timeout: int = 30
    """How long requests in progress may go on after SIGTERM: the grace period of Kubernetes by default."""

    keep_alive_timeout: int = 75
    """How long an idle connection stays open: longer than the 60 s after which common load balancers drop
    theirs, so that they never send a request down a connection that is just being closed."""

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {self.device!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("artifact", "device") or value is None:
                continue
            if field.type in (float, "float"):
                # Written so that NaN fails; a day is far above any use and below what selectors overflow at.
                if not 0 < value <= 86_400:
                    raise ValueError(f"{field.name} must be above 0 and at most 86400, got {value}")
            elif value < 1:
                raise ValueError(f"{field.name} must be at least 1, got {value}")
        if self.max_pixels > PILLOW_MAX_PIXELS:
            raise ValueError(f"max_pixels must be at most {PILLOW_MAX_PIXELS}, got {self.max_pixels}")
