"""API keys and the key file. `middleware.Guard` checks the key of each request.

Memory holds only SHA-256 hashes. A fast hash is enough, because keys are random.
"""

import hashlib
import hmac
import logging
import re
import time
from pathlib import Path
from typing import NamedTuple

from lensbox.common.errors import ExitCode, LensboxError

_log = logging.getLogger(__name__)

_INTERVAL = 0.5  # seconds between two checks of the file
_LARGEST_FILE = 1 << 20  # bytes
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_KEY = re.compile(r"[!-~]{16,256}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")


class KeyFileError(LensboxError):
    """A key file cannot be used. The message says why and never contains a key."""

    exit_code = ExitCode.UNUSABLE


class ApiKey(NamedTuple):
    """name: the key's owner, for logs. digest: SHA-256 of the key."""

    name: str
    digest: bytes


class ApiKeys(tuple[ApiKey, ...]):
    """All known keys. A name may have several keys, so that a key can be replaced."""

    def name_of(self, key: bytes) -> str | None:
        """Return the name of a key's owner, or None. Compares in constant time."""
        digest = hashlib.sha256(key).digest()
        found = None
        for name, known in self:
            if hmac.compare_digest(digest, known):
                found = name
        return found


def parse_keys(content: bytes) -> ApiKeys:
    """Return the keys in a key file.

    Each line is a name and a key, or a name and `sha256:` with the key's hash; # begins a comment. Raises
    KeyFileError, which names the line.
    """
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise KeyFileError(f"the file must be ASCII, got another byte at offset {error.start}") from None
    keys: dict[bytes, ApiKey] = {}
    for number, line in enumerate(lines, 1):
        words = [] if line.lstrip().startswith("#") else line.split()
        if not words:
            continue
        key = _parse_line(number, words)
        if key.digest in keys:
            raise KeyFileError(f"line {number}: each key must occur once, got a key of an earlier line")
        keys[key.digest] = key
    if not keys:
        raise KeyFileError("the file must have at least one key, got none")
    return ApiKeys(keys.values())


def _parse_line(number: int, words: list[str]) -> ApiKey:
    if len(words) != 2:
        hint = "; leave out the '-' that sha256sum prints" if words[-1] == "-" else ""
        raise KeyFileError(f"line {number}: expected a name and a key, got {len(words)} words{hint}")
    name, key = words
    if not _NAME.fullmatch(name):
        raise KeyFileError(f"line {number}: a name must be 1 to 64 characters of A-Z a-z 0-9 . _ @ -")
    if key.startswith("sha256:"):
        found = _HASH.fullmatch(key)
        if found is None:
            raise KeyFileError(f"line {number}: sha256: must be followed by 64 hex digits in lower case")
        return ApiKey(name, bytes.fromhex(found[1]))
    if not _KEY.fullmatch(key):
        raise KeyFileError(f"line {number}: a key must have 16 to 256 characters, got {len(key)}")
    return ApiKey(name, hashlib.sha256(key.encode()).digest())


class KeyFile:
    """The keys of a key file. `refresh` reloads a changed file.

    Raises KeyFileError. A pickled copy in another process starts with the same keys.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = self._seen = _version(path)  # of the current keys; at the last check
        self._looked = 0.0  # time of the last check
        try:
            self.keys = parse_keys(_read(path))
        except (KeyFileError, OSError) as error:
            raise KeyFileError(f"api_keys_file {path} cannot be used: {_reason(error)}") from error

    def refresh(self, log_level: int = logging.INFO) -> None:
        """Reload the file if it has changed. Log a change without the keys. Call it often.

        A broken file changes nothing. A changed file is read once two checks agree, because the first check
        may see a half-written file.
        """
        now = time.monotonic()
        if now - self._looked < _INTERVAL:
            return
        before, self._seen, self._looked = self._seen, _version(self._path), now
        if self._seen != before or self._seen == self._version:
            return
        self._version, old = self._seen, self.keys
        try:
            self.keys = parse_keys(_read(self._path))
        except (KeyFileError, OSError) as error:
            if log_level >= logging.INFO:
                reason = _reason(error)
                _log.error("%s cannot be used; the previous keys stay valid: %s", self._path, reason)
            return
        known, names = ({key.name for key in keys} for keys in (old, self.keys))
        _log.log(
            log_level,
            "%s was reloaded; keys: %d; new names: %s; removed names: %s",
            *(self._path, len(self.keys), _listed(names - known), _listed(known - names)),
        )


def _version(path: Path) -> tuple[int, ...]:
    """Return inode, size and modification time of a file; an empty tuple if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise KeyFileError(f"the file must have at most {_LARGEST_FILE} bytes, got more")
    return content


def _reason(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
