"""API keys, and the file that holds them. `middleware.Guard` asks for them.

Memory holds only SHA-256 hashes. A fast hash is enough, because keys are random.
"""

import hashlib
import hmac
import logging
import re
import threading
from pathlib import Path
from typing import Any, NamedTuple

from lensbox.common.errors import ExitCode, LensboxError

_log = logging.getLogger(__name__)

_INTERVAL = 0.5  # seconds; a change counts once two looks agree
_LARGEST_FILE = 1 << 20  # bytes
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_KEY = re.compile(r"[!-~]{16,256}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")


class KeyFileError(LensboxError):
    """A key file cannot be used. The message says why and never contains a key."""

    exit_code = ExitCode.UNUSABLE


class ApiKey(NamedTuple):
    """name: of the key's owner, for logs. digest: SHA-256 of the key."""

    name: str
    digest: bytes


class ApiKeys(tuple[ApiKey, ...]):
    """All known keys. A name may have several, so that a key can be replaced."""

    def name_of(self, key: bytes) -> str | None:
        """Return the name of a key's owner, or None. Compares in constant time."""
        digest = hashlib.sha256(key).digest()
        found = None
        for name, known in self:
            if hmac.compare_digest(digest, known):
                found = name
        return found


def parse_keys(content: bytes) -> ApiKeys:
    """Parse lines of a name and a key, or of a name and `sha256:` with the key's hash; # begins a comment.

    Raises KeyFileError, which names the line.
    """
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise KeyFileError(f"it must be ASCII, got another byte at offset {error.start}") from None
    keys: dict[bytes, ApiKey] = {}
    for number, line in enumerate(lines, 1):
        words = [] if line.lstrip().startswith("#") else line.split()
        if not words:
            continue
        key = _parse_line(number, words)
        if key.digest in keys:
            raise KeyFileError(f"line {number}: a key must belong to one name, got that of another line")
        keys[key.digest] = key
    if not keys:
        raise KeyFileError("it must hold at least one key, got none")
    return ApiKeys(keys.values())


def _parse_line(number: int, words: list[str]) -> ApiKey:
    if len(words) != 2:
        hint = "; leave out the '-' that sha256sum prints" if words[-1] == "-" else ""
        raise KeyFileError(f"line {number}: it must have a name and a key, got {len(words)} words{hint}")
    name, key = words
    if not _NAME.fullmatch(name):
        raise KeyFileError(f"line {number}: a name must be 1 to 64 letters, digits, and . _ @ - alone")
    if key.startswith("sha256:"):
        found = _HASH.fullmatch(key)
        if found is None:
            raise KeyFileError(f"line {number}: sha256: must be followed by 64 hex digits in lower case")
        return ApiKey(name, bytes.fromhex(found[1]))
    if not _KEY.fullmatch(key):
        raise KeyFileError(f"line {number}: a key must have 16 to 256 characters, got {len(key)}")
    return ApiKey(name, hashlib.sha256(key.encode()).digest())


class KeyFile:
    """The keys of a file. `watch` keeps them up to date.

    Raises KeyFileError. Can be pickled for another process, which begins with the same keys.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            content = _read(path)
            keys = parse_keys(content)
        except (KeyFileError, OSError) as error:
            raise KeyFileError(f"api_keys_file {path} cannot be used: {_reason(error)}") from error
        self._state = _State(hashlib.sha256(content).digest(), keys)
        self._stopped = threading.Event()

    def __reduce__(self) -> Any:
        return _restored, (self._path, self._state)

    @property
    def keys(self) -> ApiKeys:
        """The current keys."""
        return self._state.keys

    def watch(self, log_level: int = logging.INFO) -> None:
        """Follow the file in a thread, and log each change without its keys."""
        self._stopped = threading.Event()
        arguments = self._stopped, log_level
        threading.Thread(target=self._watch, args=arguments, name="lensbox-keys", daemon=True).start()

    def stop(self) -> None:
        """End `watch`."""
        self._stopped.set()

    def _watch(self, stopped: threading.Event, log_level: int) -> None:
        seen = self._state.content
        while not stopped.wait(_INTERVAL):
            seen = self._look(seen, log_level)

    def _look(self, seen: bytes, log_level: int) -> bytes:
        """Take the file's keys if two looks in a row agree: a file may be half written. Return its hash."""
        content, problem = b"", ""
        try:
            content = _read(self._path)
        except (KeyFileError, OSError) as error:
            problem = _reason(error)
        now = hashlib.sha256(problem.encode() or content).digest()
        if now != seen or now == self._state.content:
            return now
        before = self.keys
        try:
            if problem:
                raise KeyFileError(problem)
            self._state = _State(now, parse_keys(content))
        except KeyFileError as error:
            self._state = _State(now, before)
            if log_level >= logging.INFO:
                _log.error("%s cannot be used, and the keys from before stay: %s", self._path, error)
            return now
        old, new = ({key.name for key in keys} for keys in (before, self.keys))
        _log.log(
            log_level,
            "%s was read again; keys: %d; new names: %s; gone: %s",
            *(self._path, len(self.keys), _listed(new - old), _listed(old - new)),
        )
        return now


class _State(NamedTuple):
    """content: hash of the file that the keys come from."""

    content: bytes
    keys: ApiKeys


def _restored(path: Path, state: _State) -> KeyFile:
    file = KeyFile.__new__(KeyFile)
    file._path, file._state, file._stopped = path, state, threading.Event()
    return file


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise KeyFileError(f"it must have at most {_LARGEST_FILE} bytes, got more")
    return content


def _reason(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
