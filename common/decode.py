"""The words of `--decode`: which processor decodes JPEG files."""

from typing import Literal, get_args

Decode = Literal["auto", "cpu", "gpu"]
DECODE: tuple[Decode, ...] = get_args(Decode)


def check_decode(decode: str) -> None:
    """Raise ValueError unless `decode` is one of `DECODE`."""
    if decode not in DECODE:
        raise ValueError(
            f"decode must be {', '.join(map(repr, DECODE[:-1]))} or {DECODE[-1]!r}, got {decode!r}"
        )
