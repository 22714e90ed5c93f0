"""Which URLs the service may fetch images from, and which addresses it may connect to for them."""

import ipaddress
import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PORTS = {"https": 443, "http": 80}
_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_PRINTABLE = re.compile(r"[!-~]+")
_MOST_LETTERS = 8192  # some signatures of object stores take a thousand or two
# Addresses of IPv6 that stand for one of IPv4, in their last 32 bits: RFC 6052, the prefix that DNS64 uses.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Target(NamedTuple):
    """A URL, taken apart once: what is checked is what is asked for. path: with its query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """As the header Host has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class NotAllowedError(ValueError):
    """A URL or an address that no rule allows."""


@dataclass(frozen=True)
class _Rule:
    scheme: str
    host: str
    port: int
    path: str

    def allows(self, target: Target) -> bool:
        if (self.scheme, self.host, self.port) != target[:3]:
            return False
        path = target.path.partition("?")[0]
        below = self.path if self.path.endswith("/") else f"{self.path}/"
        return path == self.path or (path.startswith(below) and not (self.path != "/" and _climbs(path)))


class UrlRules:
    """An allow-list.

    entries: with commas between them, host names, which stand for https://HOST/, and prefixes
    SCHEME://HOST[:PORT]/PATH of http or https.

    A host may be an IP address: then it may also be what a listed name means, though it be private. Raises
    ValueError for anything else.
    """

    def __init__(self, entries: str) -> None:
        self._rules = [_rule(entry.strip()) for entry in entries.split(",")] if entries.strip() else []
        hosts = [_address(rule.host) for rule in self._rules]
        self._addresses = {address for address in hosts if address is not None}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def check(self, url: str) -> Target:
        """The parts of a URL that is allowed. Raises NotAllowedError."""
        target = _target(url)
        if not any(rule.allows(target) for rule in self._rules):
            raise NotAllowedError("must be one that the service was told to allow")
        return target

    def admits(self, address: str) -> bool:
        """Whether it may be connected to: to addresses of the public internet, and to listed ones."""
        parsed = _address(address.partition("%")[0])
        return parsed is not None and (parsed in self._addresses or _is_public(parsed))


def _rule(entry: str) -> _Rule:
    """Raises ValueError."""
    as_address = _address(entry)
    if as_address is not None:
        return _Rule("https", str(as_address), _PORTS["https"], "/")
    url = entry if "://" in entry else f"https://{entry}/"
    try:
        target = _target(url)
    except NotAllowedError as error:
        raise ValueError(f"host names and URLs with commas between them, got {entry!r}: it {error}") from None
    if ("/" in entry) != ("://" in entry) or "?" in target.path or "#" in url or _climbs(target.path):
        raise ValueError(f"host names, or URLs without query, fragment and dot segments, got {entry!r}")
    return _Rule(*target)


def _target(url: str) -> Target:
    """The parts of a URL as they will be used. Raises NotAllowedError for one that has several readings."""
    # urlsplit would drop line breaks and tabs, and other programs read backslashes as slashes.
    if len(url) > _MOST_LETTERS or not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise NotAllowedError(f"must be at most {_MOST_LETTERS} printable ASCII letters without backslashes")
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, _host_of(parts), parts.port
    except ValueError as error:
        raise NotAllowedError(f"must be a URL: {error}") from None
    if scheme not in _PORTS:
        raise NotAllowedError("must begin with https:// or http://")
    if "@" in parts.netloc:
        raise NotAllowedError("must have no user name")
    path = parts.path or "/"
    return Target(
        scheme,
        host,
        _PORTS[scheme] if port is None else port,
        path + (f"?{parts.query}" if parts.query else ""),
    )


def _host_of(parts: SplitResult) -> str:
    """In small letters; an address in its one usual form. Raises ValueError."""
    host = parts.hostname or ""
    if (address := _address(host)) is not None:
        return str(address)
    if not _HOST.fullmatch(host):
        raise ValueError("it must name a host, in ASCII")
    return host


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return _is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        embedded = address.ipv4_mapped or address.sixtofour
        if embedded is not None:
            return _is_public(embedded)
        if address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _climbs(path: str) -> bool:
    """Whether some server might read a path as one outside of its own beginning."""
    while (plain := unquote(path)) != path:
        if plain.count("/") != path.count("/") or "\\" in plain:
            return True
        path = plain
    return any(segment in (".", "..") for segment in path.split("/"))
