"""Which form of an answer a client wants: the header Accept of RFC 9110, section 12.5.1."""

import re
from collections.abc import Sequence

from lensbox.serve.errors import ApiError, shown

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# What stands in quotes is skipped whole: a comma in it separates nothing. Quotes may never end: a match that
# has begun never has to be given up, and all takes linear time.
_ITEM = re.compile(r'(?:"(?:[^"\\]|\\.?)*"?|[^,"])+')
_RANGE = re.compile(rf"\s*({_TOKEN})/({_TOKEN})\s*(?:;|$)")
_QUALITY = re.compile(r";\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*(?:;|$)", re.IGNORECASE)
_ANY_QUALITY = re.compile(r";\s*q\s*=", re.IGNORECASE)


def negotiated(accept: Sequence[str], offered: Sequence[str]) -> str:
    """The one of `offered` media types that a client likes best, of several the first.

    accept: the values of its Accept headers; without one, or with nothing legible in them, all are welcome.
    For each type the most exact range counts. Raises ApiError (406) if none is acceptable.
    """
    if all(value in ("", "*/*") for value in accept):  # nearly always, so it had better cost nothing
        return offered[0]
    ranges = [found for item in _ITEM.findall(",".join(accept)) if (found := _range(item)) is not None]
    if not ranges:
        return offered[0]
    best = max(offered, key=lambda media_type: _quality(media_type, ranges))
    if _quality(best, ranges) == 0:
        message = f"Accept must allow {' or '.join(offered)}, got {shown(', '.join(accept))}"
        raise ApiError(406, "not_acceptable", message)
    return best


def _range(item: str) -> tuple[str, float] | None:
    """A media range in small letters, and its quality; None for what is neither."""
    found = _RANGE.match(item)
    if found is None or (found[1] == "*" and found[2] != "*"):
        return None
    quality = _QUALITY.search(item)
    if quality is None and _ANY_QUALITY.search(item):
        return None
    return f"{found[1]}/{found[2]}".lower(), float(quality[1]) if quality else 1.0


def _quality(media_type: str, ranges: Sequence[tuple[str, float]]) -> float:
    kind = media_type.partition("/")[0]
    for wanted in (media_type, f"{kind}/*", "*/*"):
        qualities = [quality for name, quality in ranges if name == wanted]
        if qualities:
            return max(qualities)
    return 0.0
