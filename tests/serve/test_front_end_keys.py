"""API keys of a service of several processes, before and after a front end dies."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from serve_process import PATIENCE, ServeProcess

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

_ALICE, _BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"alice {_ALICE}\n")
    return path


@pytest.fixture
def process(artifact_path: Path, keys: Path) -> Iterator[ServeProcess]:
    process = ServeProcess(
        artifact_path,
        *("--frontends", "2", "--api-keys-file", str(keys)),
    )
    yield process
    process.close()


def _ask(url: str, key: str, path: str = "/v2") -> int:
    """The status of a request over a connection of its own, or 0 if there is no answer."""
    try:
        return httpx.get(f"{url}{path}", headers={"X-API-Key": key}, timeout=PATIENCE).status_code
    except httpx.TransportError:
        return 0


def _front_ends(process: ServeProcess) -> list[int]:
    """Find processes by their names."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            name = (folder / "comm").read_text().strip()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            grandparent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if name == "lensbox-http" and grandparent == process.process.pid:
            found.append(int(folder.name))
    return sorted(found)


def test_keys_are_those_of_all_front_ends(
    process: ServeProcess, keys: Path, wait_until: Callable[..., None]
) -> None:
    wait_until(lambda: process.url() is not None)
    url = process.url() or ""
    wait_until(lambda: _ask(url, "none", "/readyz") == 200)
    wait_until(lambda: len(_front_ends(process)) == 2)
    assert {_ask(url, _ALICE) for _ in range(10)} == {200}

    # A broken file is said once, however many processes read it, and changes nothing: nor do new processes.
    keys.write_text(f"bob {_BOB}\nbroken\n")
    wait_until(lambda: "the keys from before stay: line 2" in process.log)
    before = _front_ends(process)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(set(_front_ends(process)) - set(before)) == 2)
    wait_until(lambda: _ask(url, "none", "/readyz") == 200)
    assert {_ask(url, _ALICE) for _ in range(10)} == {200}
    assert {_ask(url, _BOB) for _ in range(10)} == {401}

    keys.write_text(f"bob {_BOB}\n")
    wait_until(lambda: _ask(url, "none") == 401)
    wait_until(lambda: "was read again; keys: 1; new names: bob; gone: alice" in process.log)
    wait_until(lambda: {_ask(url, _ALICE) for _ in range(10)} == {401})
    assert _ask(url, _BOB) == 200
    assert process.log.count("the keys from before stay") == 1
    assert process.log.count("was read again") == 1
    assert _ALICE not in process.log
    assert _BOB not in process.log


def test_a_file_that_cannot_be_used_is_one_message(artifact_path: Path, tmp_path: Path) -> None:
    process = ServeProcess(artifact_path, "--api-keys-file", str(tmp_path / "nothing"))
    try:
        assert process.process.wait(PATIENCE) == 3
        process.thread.join(PATIENCE)
        message = f"--api-keys-file {tmp_path}/nothing cannot be used: No such file or directory"
        assert process.lines[-1] == f"lensbox serve: cannot start: {message}\n"
    finally:
        process.close()
