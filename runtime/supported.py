"""Which versions of Python and torch this Lensbox is for, by the metadata of its package."""

import re
from importlib.metadata import PackageNotFoundError, metadata


def verdict(name: str, found: str) -> str:
    """The version `found` of "python" or "torch", and if it is outside of what is supported, that it is."""
    wanted = _wanted(name)
    least, end = re.search(r">=([\d.]+)", wanted), re.search(r"<([\d.]+)", wanted)
    if least is None or end is None or _numbers(least[1]) <= _numbers(found) < _numbers(end[1]):
        return found
    return f"{found}, NOT SUPPORTED: it must be at least {least[1]} and below {end[1]}"


def _wanted(name: str) -> str:
    """Such as ">=3.10,<3.14"; "" where Lensbox is no installed package."""
    try:
        package = metadata("lensbox")
    except PackageNotFoundError:
        return ""
    if name == "python":
        return package["Requires-Python"] or ""
    lines: list[str] = package.get_all("Requires-Dist") or []
    return next((line for line in lines if re.match(rf"{name}\b[^;]*$", line)), "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
