"""API keys: read at the start, and compared with the key of each request."""

import hmac
import os
import re
from collections.abc import Sequence
from pathlib import Path

from starlette.datastructures import Headers

from lensbox.common.errors import ExitCode, LensboxError, system_reason
from lensbox.serve.errors import ApiError

_VARIABLE = "LENSBOX_API_KEYS"
_KEY = re.compile(r"[!-~]{16,256}")


class ApiKeyError(LensboxError):
    """The API keys cannot be used. The message says why and never contains a key."""

    exit_code = ExitCode.UNUSABLE


def read_keys(file: Path | None) -> tuple[bytes, ...]:
    """Return the keys in a file, or else in LENSBOX_API_KEYS; an empty tuple without both.

    Line breaks and commas separate keys. A line that begins with # is a comment. Raises ApiKeyError.
    """
    source = _VARIABLE if file is None else f"api_keys_file {file}"
    try:
        text = os.environ.get(_VARIABLE) if file is None else file.read_text("utf-8-sig", "replace")
    except OSError as error:
        raise ApiKeyError(f"{source} cannot be read: {system_reason(error)}") from error
    if text is None:
        return ()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    keys = [key for key in map(str.strip, ",".join(lines).split(",")) if key]
    if not keys:
        raise ApiKeyError(f"{source} must have at least one key, got none")
    for number, key in enumerate(keys, 1):
        if not _KEY.fullmatch(key):
            rule = "16 to 256 visible ASCII characters"
            raise ApiKeyError(f"{source}: key {number} must be {rule}, got {len(key)} characters")
    return tuple(key.encode() for key in keys)


class Keys:
    """The known keys. None: every request may pass."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    def check(self, headers: Headers) -> None:
        """Raise ApiError (401) unless `Authorization: Bearer` has a known key. The time tells nothing."""
        if not self._keys:
            return
        scheme, _, text = ",".join(headers.getlist("authorization")).partition(" ")
        key = text.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
        if not sum(hmac.compare_digest(key, known) for known in self._keys):
            got = "an unknown key" if key else "none"
            message = f"send an API key as 'Authorization: Bearer KEY', got {got}"
            raise ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})
