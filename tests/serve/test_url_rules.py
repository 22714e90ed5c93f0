"""The allow-list of URLs that images are fetched from."""

from pathlib import Path

import pytest

from lensbox.serve.settings import Settings
from lensbox.serve.url_rules import NotAllowedError, Target, UrlRules

_RULES = UrlRules(
    "images.example.com, https://cdn.example.com/photos,http://127.0.0.1:9000/a/,10.1.2.3,[::1]"
)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://images.example.com", ("https", "images.example.com", 443, "/")),
        ("HTTPS://Images.Example.COM:443/x?y=1&z#part", ("https", "images.example.com", 443, "/x?y=1&z")),
        ("https://images.example.com/../x", ("https", "images.example.com", 443, "/../x")),
        ("https://cdn.example.com/photos", ("https", "cdn.example.com", 443, "/photos")),
        ("https://cdn.example.com/photos/", ("https", "cdn.example.com", 443, "/photos/")),
        ("https://cdn.example.com/photos/a%20b/c..d.jpg?q=../x", None),
        ("http://127.0.0.1:9000/a/b", ("http", "127.0.0.1", 9000, "/a/b")),
        ("https://10.1.2.3/x", ("https", "10.1.2.3", 443, "/x")),
        ("https://[::1]/x", ("https", "::1", 443, "/x")),
        ("https://[0:0::0001]/x", ("https", "::1", 443, "/x")),
    ],
)
def test_what_is_allowed(url: str, target: tuple[str, str, int, str] | None) -> None:
    assert _RULES.check(url) == (target or Target("https", "cdn.example.com", 443, url.partition(".com")[2]))


@pytest.mark.parametrize(
    "url",
    [
        "http://images.example.com/",
        "https://images.example.com:8443/",
        "https://example.com/",
        "https://images.example.com.evil.com/",
        "https://evil.com/images.example.com",
        "https://images.example.com@evil.com/",
        "https://user:pass@images.example.com/",
        "https://@images.example.com/",
        "https://evil.com\\@images.example.com/",
        "https://images.example.com\\.evil.com/",
        "https://images.example.com./",
        "https://images.exam\tple.com/",
        "https://images.example.com/\r\nHost: x",
        "https://images.example.com/ x",
        "https://\u0131mages.example.com/",
        "https://images.example.com:99999/",
        "https://images.example.com:x/",
        "//images.example.com/",
        "images.example.com",
        "file:///etc/passwd",
        "ftp://images.example.com/",
        "gopher://127.0.0.1:9000/a/",
        "https://[::1/",
        "",
        "https://" + "a" * 10_000,
        "https://cdn.example.com/",
        "https://cdn.example.com/photos-private/x",
        "https://cdn.example.com/photos?/../x"[:30] + "x",
        "https://cdn.example.com/photos/../private/x",
        "https://cdn.example.com/photos/%2e%2E/private/x",
        "https://cdn.example.com/photos/%252e%252e/private/x",
        "https://cdn.example.com/photos/..%2fprivate/x",
        "https://cdn.example.com/photos/a%2f..%2f..%2fprivate",
        "https://cdn.example.com/photos/%5c..%5cprivate",
        "https://cdn.example.com/photos/./x",
        "http://127.0.0.1:9000/",
        "http://127.0.0.1/a/",
        "http://127.1:9000/a/",
        "http://2130706433:9000/a/",
        "http://0x7f.0.0.1:9000/a/",
        "http://localhost:9000/a/",
        "http://[::ffff:127.0.0.1]:9000/a/",
    ],
)
def test_what_is_not(url: str) -> None:
    with pytest.raises(NotAllowedError):
        _RULES.check(url)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1", "64:ff9b::808:808", "10.1.2.3", "127.0.0.1", "::1"]
)
def test_addresses_that_may_be_connected_to(address: str) -> None:
    assert _RULES.admits(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.2",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.2",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::7f00:2",
        "2002:7f00:2::1",
        "2001:0:1::1",
        "no address",
    ],
)
def test_addresses_that_may_not(address: str) -> None:
    assert not _RULES.admits(address)


def test_nothing_is_allowed_by_default() -> None:
    assert not UrlRules("")
    assert not UrlRules("  ")
    assert UrlRules("example.com")
    assert not UrlRules(Settings(artifact=Path("x")).url_allow)


@pytest.mark.parametrize(
    "entries",
    [
        "example.com,",
        "https://",
        "ftp://example.com/",
        "https://user@example.com/",
        "https://example.com/?q",
        "https://example.com/#x",
        "https://example.com/a/../b",
        "https://example.com/a/%2e%2e/b",
        "exa mple.com",
        "*.example.com",
        "10.0.0.0/8",
        "example.com/photos",
        "https://example.com:x/",
    ],
)
def test_entries_that_say_nothing(entries: str) -> None:
    with pytest.raises(ValueError, match="url_allow must be "):
        Settings(artifact=Path("x"), url_allow=entries)
