"""Keys: read at the start, and compared with the key of each request."""

import ctypes
import hmac
import os
import re
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers

from lensbox.common.errors import reading
from lensbox.common.files import read_input
from lensbox.serve.errors import ApiError, StartupError
from lensbox.serve.settings import Settings

_VARIABLES = "LENSBOX_API_KEYS", "LENSBOX_ADMIN_KEY"
_KEY = re.compile(r"[!-~]{16,256}")


class Keys(NamedTuple):
    """The known keys. api: none to let every request pass. admin: None to let nobody change models."""

    api: tuple[bytes, ...] = ()
    admin: bytes | None = None

    def check(self, headers: Headers) -> None:
        """Raise ApiError (401) unless `Authorization: Bearer` has a known key."""
        if self.api:
            _check(headers, (*self.api, self.admin or b""), "an API key")

    def is_admin(self, headers: Headers) -> bool:
        """Return whether `Authorization: Bearer` has the admin key."""
        return self.admin is not None and _has(headers, (self.admin,))

    def check_admin(self, headers: Headers) -> None:
        """Raise ApiError unless `Authorization: Bearer` has the admin key: 401, or 403 for an API key, or if
        there is no admin key."""
        if self.admin is None:
            how = "start the service with --admin-key-file, or with LENSBOX_ADMIN_KEY in its environment"
            raise ApiError(403, "not_enabled", f"loading and unloading are off; {how}")
        if self.api and not self.is_admin(headers) and _has(headers, self.api):
            message = "loading and unloading need the admin key, got an API key"
            raise ApiError(403, "forbidden", message)
        _check(headers, (self.admin,), "the admin key")


def _key(headers: Headers) -> bytes:
    scheme, _, text = ",".join(headers.getlist("authorization")).partition(" ")
    return text.strip().encode("latin-1") if scheme.lower() == "bearer" else b""


def _has(headers: Headers, known: tuple[bytes, ...]) -> bool:
    """Return whether a request has a known key. The time tells nothing."""
    key = _key(headers)
    return bool(key) and sum(hmac.compare_digest(key, one) for one in known) > 0


def _check(headers: Headers, known: tuple[bytes, ...], name: str) -> None:
    """Raise ApiError (401) unless the request has a known key."""
    if not _has(headers, known):
        got = "an unknown key" if _key(headers) else "none"
        message = f"send {name} as 'Authorization: Bearer KEY', got {got}"
        raise ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


def read_keys(settings: Settings) -> Keys:
    """Return the keys in the files of the settings, or else in the environment. Raise StartupError."""
    api = _read("api_keys_file", settings.api_keys_file, _VARIABLES[0])
    admin = _read("admin_key_file", settings.admin_key_file, _VARIABLES[1])
    if len(admin) > 1:
        raise StartupError(f"there must be one admin key, got {len(admin)}")
    return Keys(api, admin[0] if admin else None)


def forget_variables() -> None:
    """Remove the keys from the environment, and from /proc/PID/environ, which forked processes have, too."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in _VARIABLES:
        if place := libc.getenv(name.encode()):
            ctypes.memset(place, 0, len(ctypes.string_at(place)))
        os.environ.pop(name, None)


def _read(name: str, file: Path | None, variable: str) -> tuple[bytes, ...]:
    """Return the keys in a file, or else in a variable. Line breaks and commas separate keys."""
    source = variable if file is None else f"{name} {file}"
    with reading(source, StartupError):
        text = os.environ.get(variable) if file is None else read_input(file).decode("utf-8-sig", "replace")
    if text is None:
        return ()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    keys = [key for key in map(str.strip, ",".join(lines).split(",")) if key]
    if not keys:
        raise StartupError(f"{source} must have at least one key, got none")
    for number, key in enumerate(keys, 1):
        if not _KEY.fullmatch(key):
            rule = "16 to 256 visible ASCII characters"
            raise StartupError(f"{source}: key {number} must be {rule}, got {len(key)} characters")
    return tuple(key.encode() for key in keys)
