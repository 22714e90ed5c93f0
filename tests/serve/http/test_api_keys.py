"""Files of keys: what they may hold, and how a change is taken over."""

import hashlib
import logging
import pickle
from pathlib import Path

import pytest

from lensbox.serve.http import api_keys
from lensbox.serve.http.api_keys import KeyFile, KeyFileError, parse_keys

_ALICE, _BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
_HASH = hashlib.sha256(_BOB.encode()).hexdigest()


def test_keys_are_plain_or_hashed() -> None:
    content = f"# who may ask\n\n  alice {_ALICE}\r\nalice {_ALICE}-2\nbob\tsha256:{_HASH}\n"
    keys = parse_keys(content.encode())
    assert keys.name_of(_ALICE.encode()) == keys.name_of(f"{_ALICE}-2".encode()) == "alice"
    assert keys.name_of(_BOB.encode()) == "bob"
    for wrong in (b"", _ALICE.encode()[:-1], _ALICE.encode() + b"x", f"sha256:{_HASH}".encode(), b"\xff"):
        assert keys.name_of(wrong) is None
    assert _ALICE not in repr(keys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it must hold at least one key, got none"),
        ("# nothing\n", "it must hold at least one key, got none"),
        (_ALICE, "line 1: it must have a name and a key, got 1 words"),
        (f"\nalice {_ALICE} # hers", "line 2: it must have a name and a key, got 4 words"),
        (
            f"bob sha256:{_HASH}  -",
            "line 1: it must have a name and a key, got 3 words; leave out the '-' that sha256sum prints",
        ),
        (f"al/ice {_ALICE}", "line 1: a name must be 1 to 64 letters, digits, and . _ @ - alone"),
        ("alice short", "line 1: a key must have 16 to 256 characters, got 5"),
        (f"alice sha256:{_HASH[1:]}", "line 1: sha256: must be followed by 64 hex digits in lower case"),
        (f"a {_ALICE}\nb {_ALICE}", "line 2: a key must belong to one name, got that of another line"),
        (f"ä {_ALICE}", "it must be ASCII, got another byte at offset 0"),
    ],
)
def test_what_a_file_may_not_hold(content: str, message: str) -> None:
    with pytest.raises(KeyFileError) as raised:
        parse_keys(content.encode())
    assert str(raised.value) == message


def test_a_file_that_cannot_be_used_says_which(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"^api_keys_file .*keys cannot be used: No such file"):
        KeyFile(tmp_path / "keys")
    (tmp_path / "keys").write_bytes(bytes(1 << 21))
    with pytest.raises(KeyFileError, match=r"it must have at most 1048576 bytes, got more$"):
        KeyFile(tmp_path / "keys")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Path:
    monkeypatch.setattr(api_keys, "_INTERVAL", 0)
    caplog.set_level(logging.INFO)
    (tmp_path / "keys").write_text(f"alice {_ALICE}\n")
    return tmp_path / "keys"


def test_a_change_counts_once_two_looks_agree(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = KeyFile(path)
    path.write_text(f"bob {_BOB[:-1]}")  # half of the file
    file.refresh()
    path.write_text(f"bob {_BOB}\n")
    file.refresh()
    assert (file.keys.name_of(_ALICE.encode()), caplog.records) == ("alice", [])
    for _ in range(2):
        file.refresh()
    assert file.keys.name_of(_BOB.encode()) == "bob"
    assert file.keys.name_of(_ALICE.encode()) is None
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"{path} was read again; keys: 1; new names: bob; gone: alice"]


@pytest.mark.parametrize("broken", [f"bob {_BOB}\ncarol\n", None])
def test_a_broken_file_keeps_the_keys_from_before(
    path: Path, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    file = KeyFile(path)
    path.unlink()
    if broken is not None:
        path.write_text(broken)
    for _ in range(3):
        file.refresh()
    other = pickle.loads(pickle.dumps(file))  # another process begins with the same keys
    other.refresh()
    reason = "No such file or directory" if broken is None else "line 2: it must have a name and a key"
    assert f"{path} cannot be used, and the keys from before stay: {reason}" in caplog.text
    assert len(caplog.records) == 1
    for keys in (file.keys, other.keys):
        assert keys.name_of(_ALICE.encode()) == "alice"
        assert keys.name_of(_BOB.encode()) is None
    path.write_text(f"alice {_ALICE}\nbob {_BOB}\n")
    for _ in range(2):
        file.refresh()
    assert file.keys.name_of(_BOB.encode()) == "bob"
    assert _ALICE not in caplog.text
    assert _BOB not in caplog.text
