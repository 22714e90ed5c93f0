"""Files of keys: what they may hold, and how a change is taken over."""

import hashlib
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lensbox.serve.http import api_keys
from lensbox.serve.http.api_keys import KeyFile, KeyFileError, parse_keys

_ALICE, _BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
_HASH = hashlib.sha256(_BOB.encode()).hexdigest()


def test_keys_are_plain_or_hashed() -> None:
    keys = parse_keys(f"# who may ask\n\n  alice {_ALICE}\r\nbob\tsha256:{_HASH}\n".encode())
    assert keys.name_of(_ALICE.encode()) == "alice"
    assert keys.name_of(_BOB.encode()) == "bob"
    for wrong in (b"", _ALICE.encode()[:-1], _ALICE.encode() + b"x", f"sha256:{_HASH}".encode(), b"\xff"):
        assert keys.name_of(wrong) is None
    assert _ALICE not in repr(keys)


def test_a_name_may_have_two_keys_for_a_while() -> None:
    keys = parse_keys(f"alice {_ALICE}\nalice {_BOB}".encode())
    assert keys.name_of(_ALICE.encode()) == keys.name_of(_BOB.encode()) == "alice"


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
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(api_keys, "_INTERVAL", 0.02)
    (tmp_path / "keys").write_text(f"alice {_ALICE}\n")
    return tmp_path / "keys"


@pytest.fixture
def file(path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[KeyFile]:
    caplog.set_level(logging.INFO)
    file = KeyFile(path)
    file.watch()
    yield file
    file.stop()


def test_a_changed_file_counts(
    file: KeyFile, path: Path, wait_until: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(f"bob {_BOB}\n")
    wait_until(lambda: file.keys.name_of(_BOB.encode()) == "bob")
    assert file.keys.name_of(_ALICE.encode()) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} was read again; keys: 1; new names: bob; gone: alice"
    ]


@pytest.mark.parametrize("broken", [f"bob {_BOB}\ncarol\n", None])
def test_a_broken_file_keeps_the_keys_from_before(
    file: KeyFile,
    path: Path,
    wait_until: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    broken: str | None,
) -> None:
    if broken is None:
        path.unlink()
    else:
        path.write_text(broken)
    wait_until(lambda: len(caplog.records) == 1)
    reason = "No such file or directory" if broken is None else "line 2: it must have a name and a key"
    assert f"{path} cannot be used, and the keys from before stay: {reason}" in caplog.text
    assert file.keys.name_of(_ALICE.encode()) == "alice"
    assert file.keys.name_of(_BOB.encode()) is None
    path.write_text(f"alice {_ALICE}\nbob {_BOB}\n")
    wait_until(lambda: file.keys.name_of(_BOB.encode()) == "bob")
    assert len(caplog.records) == 2
    assert _ALICE not in caplog.text
    assert _BOB not in caplog.text


def test_half_a_file_is_not_taken(path: Path) -> None:
    file = KeyFile(path)
    before = file._state.content
    path.write_text(f"alice {_BOB[:-2]}")
    seen = file._look(before, logging.INFO)
    path.write_text(f"alice {_BOB}\n")
    seen = file._look(seen, logging.INFO)
    assert file.keys.name_of(_ALICE.encode()) == "alice"
    file._look(seen, logging.INFO)
    assert file.keys.name_of(_BOB.encode()) == "alice"


def test_another_process_begins_with_the_same_keys(path: Path) -> None:
    file = KeyFile(path)
    path.write_text("broken")
    other = pickle.loads(pickle.dumps(file))
    assert other.keys == file.keys
    other.watch()
    other.stop()
