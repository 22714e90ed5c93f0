"""Swaps: what serves before, during and after, with stand-ins for processes."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until

from lensbox.common.errors import ArtifactError
from lensbox.serve.errors import StartupError
from lensbox.serve.models.control import Order, Report
from lensbox.serve.models.files import Catalogue, read_content
from lensbox.serve.processes import repository
from lensbox.serve.processes.repository import Repository


class FakeGroup:
    """Engines that are ready at once; those of files that begin with "bad" fail."""

    alive: list["FakeGroup"]
    addresses = ()

    def __init__(self, plan: Any, number: int, name: str, version: str, content: Any) -> None:
        self.number, self.name, self.version, self.content = number, name or "one", version, content
        self.bytes = content.read()
        self.failure = "a bad file" if self.bytes.startswith(b"bad") else ""
        self.is_ready = not self.failure
        self.alive.append(self)

    def step(self) -> None: ...

    def end(self) -> None:
        self.alive.remove(self)
        self.content.close()


class Service:
    """A repository that has started, with one front end, which adopts each table when a test lets it."""

    def __init__(self, path: Path) -> None:
        counters = SimpleNamespace(
            load_ended=lambda model, outcome: self.loads.append((model, outcome)),
            serve=lambda versions: None,
        )
        self.loads: list[tuple[str, str]] = []
        self.results: list[Any] = []
        self.tables: list[Any] = []
        catalogue = Catalogue(path, None) if path.is_file() else Catalogue(None, path)
        plan: Any = SimpleNamespace(counters=counters)
        self.models = Repository(catalogue, plan)
        child: Any = SimpleNamespace(pid=1, send=self._send, slot="frontend-0")
        self.front_end = child
        self.models.front_ends.children.append(child)
        self.models.start()
        self.until_idle()

    def _send(self, message: Any) -> None:
        if type(message).__name__ == "Table":
            self.tables.append(message)
            groups = frozenset(row.group for row in message.rows if row.group is not None)
            self.models.take(self.front_end, Report(message.number, groups, groups))
        else:
            self.results.append(message)

    def until(self, condition: Callable[[], bool]) -> None:
        """Run the supervisor's loop until a condition holds."""

        def step() -> bool:
            self.models.step()
            return condition()

        wait_until(step)

    def until_idle(self) -> None:
        self.until(lambda: not self.models.is_busy)

    def order(self, action: str, name: str = "faces", version: int | None = None) -> Any:
        count = len(self.results)
        self.models.take(self.front_end, Order(count, action, name, version))
        self.until(lambda: len(self.results) > count)
        return self.results[-1]

    @property
    def serving(self) -> list[tuple[str, str]]:
        return [(row.name, row.version) for row in self.tables[-1].rows]

    @property
    def alive(self) -> list[tuple[str, bytes]]:
        return [(group.version, group.bytes) for group in FakeGroup.alive]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the versions 1 and 2 of one model."""
    monkeypatch.setattr(repository, "Group", FakeGroup)
    FakeGroup.alive = []
    (tmp_path / "faces").mkdir()
    for version in (1, 2):
        (tmp_path / f"faces/{version}.pt").write_bytes(b"v%d" % version)
    return tmp_path


@pytest.fixture
def service(folder: Path) -> Service:
    return Service(folder)


def test_the_newest_version_serves_and_each_may_take_over(service: Service, folder: Path) -> None:
    assert service.serving == [("faces", "2")]
    assert service.models.is_ready
    result = service.order("load", version=1)
    assert (result.failure, result.content) == ("", {"name": "faces", "version": "1"})
    service.until_idle()
    assert (service.serving, service.alive) == ([("faces", "1")], [("1", b"v1")])
    service.order("load", version=1)  # it serves already
    assert service.loads == [("faces", "loaded")] * 2
    (folder / "cars").mkdir()
    (folder / "cars/5.onnx").write_bytes(b"car")
    assert service.order("load", "cars").content == {"name": "cars", "version": "5"}
    assert service.serving == [("faces", "1"), ("cars", "5")]


def test_a_file_that_fails_changes_nothing(service: Service, folder: Path, caplog: Any) -> None:
    (folder / "faces/3.pt").write_bytes(b"bad")
    result = service.order("load")
    assert result.failure == "a bad file"
    service.until_idle()
    assert (service.serving, service.alive) == ([("faces", "2")], [("2", b"v2")])
    assert "cannot load faces version 3, version 2 goes on: a bad file" in caplog.text
    reasons = {row["version"]: row["reason"] for row in service.order("index").content}
    assert reasons == {"1": "", "2": "", "3": "a bad file"}
    for name, version in (("faces", 9), ("dogs", None), ("../faces", None)):
        assert service.order("load", name, version).failure


def _held_files() -> list[str]:
    """Return the memory of loaded files that this process holds."""
    links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [link for link in links if link.startswith("/memfd:lensbox-artifact")]


def test_a_full_disk_keeps_no_bytes_of_the_new_file(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = _held_files()
    monkeypatch.setattr(repository, "Group", full)
    (folder / "faces/3.pt").write_bytes(b"v3")
    assert "No space left on device" in service.order("load").failure
    assert _held_files() == before
    assert service.serving == [("faces", "2")]


def test_unloading_ends_the_processes(service: Service) -> None:
    service.order("unload")
    assert (service.alive, service.tables[-1].rows[0].reason) == ([], "the model is unloaded")
    assert "must be loaded" in service.order("unload").failure
    service.models.load_news()  # SIGHUP leaves an unloaded model alone
    service.until_idle()
    assert service.alive == []
    for order in (Order(7, "load", "faces", 1), Order(8, "unload", "faces")):  # one after the other
        service.models.take(service.front_end, order)
    service.until_idle()
    assert (service.results[-1].content, service.alive) == ({"name": "faces", "version": "1"}, [])


def test_news_are_what_came_after_the_last_load(service: Service, folder: Path) -> None:
    """SIGHUP does not undo going back, which a restart does unless a file pins the version."""

    def news() -> list[tuple[str, bytes]]:
        service.models.load_news()
        service.until_idle()
        return service.alive

    (folder / "faces/2.pt").write_bytes(b"other")
    assert service.alive == [("2", b"v2")]
    assert news() == [("2", b"other")]
    service.order("load", version=1)
    assert news() == [("1", b"v1")]
    (folder / "faces/2.pt").touch()
    os.utime(folder / "faces/2.pt", ns=(1, 1))
    assert news() == [("2", b"other")]
    (folder / "faces/pin").write_text("1")
    assert news() == [("1", b"v1")]
    (folder / "faces/3.pt").write_bytes(b"v3")
    assert news() == [("1", b"v1")]
    assert service.order("load").content == {"name": "faces", "version": "1"}
    (folder / "faces/pin").unlink()
    (folder / "faces/3.pt").write_bytes(b"bad")
    assert news() == [("1", b"v1")]
    (folder / "faces/3.pt").write_bytes(b"good")
    assert news() == [("3", b"good")]


def test_the_fault_of_a_model_is_no_fault_of_another(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    for name in ("cars", "dogs", "hung"):
        (folder / name).mkdir()
        (folder / name / "1.pt").write_bytes(b"v1")
    (folder / "dogs/1.onnx").touch()
    os.mkfifo(folder / "faces/3.pt")
    hung, read = threading.Event(), read_content
    monkeypatch.setattr(
        repository, "read_content", lambda path: (path.parent.name != "hung" or hung.wait()) and read(path)
    )
    monkeypatch.setattr(repository, "_READ_TIMEOUT", 2.0)
    service.models.load_news()
    service.until(lambda: ("cars", "1") in service.serving)
    assert service.serving == [("faces", "2"), ("cars", "1")]
    assert "must be a regular file" in service.order("load").failure
    assert "must be one file, got 1.onnx and 1.pt" in service.order("load", "dogs").failure
    assert len(service.order("index").content) == 5 + 1
    service.until_idle()
    assert "hung/1.pt must be readable within 2 seconds" in caplog.text
    assert caplog.text.count("cannot load dogs, nothing changes: version 1") == 2  # once a load
    hung.set()


def test_one_file_has_the_number_of_its_load_as_version(folder: Path) -> None:
    path = folder / "faces/1.pt"
    service = Service(path)
    assert service.serving == [("one", "1")]
    path.write_bytes(b"new")
    assert service.order("load", "one").content == {"name": "one", "version": "2"}
    assert "must be left out" in service.order("load", "one", 1).failure
    assert service.alive == [("2", b"new")]


def test_the_start_fails_with_the_first_file_that_fails(folder: Path) -> None:
    (folder / "faces/3.pt").write_bytes(b"bad")
    with pytest.raises(StartupError, match="a bad file"):
        Service(folder)
    with pytest.raises(ArtifactError, match="cannot be read"):
        Service(folder / "nothing")


def test_the_start_goes_on_without_a_model_that_fails(folder: Path, caplog: Any) -> None:
    for name, content in (("cars", b"bad"), ("dogs", b"dog")):
        (folder / name).mkdir()
        (folder / name / "1.pt").write_bytes(content)
    service = Service(folder)
    assert service.models.is_ready
    assert [(row.name, row.group is None, row.is_wanted) for row in service.tables[-1].rows] == [
        ("cars", True, False),
        ("dogs", False, True),
        ("faces", False, True),
    ]
    assert "a bad file" not in service.tables[-1].rows[0].reason  # it may name paths
    (folder / "cars/1.pt").write_bytes(b"good")
    service.models.load_news()
    service.until_idle()
    assert ("cars", "1") in service.serving
