"""The files of models, and the bytes of a loaded file."""

import hashlib
import os
from pathlib import Path

import pytest

from lensbox.common.errors import ArtifactError
from lensbox.serve.models.files import UNNAMED, Catalogue, read_content


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models with versions, and files that are none."""
    for name in (
        "faces/2.onnx",
        "faces/10.pt",
        "faces/9.pt2",
        "faces/9.pt2.sig",
        "faces/007.pt",
        "faces/latest.pt",
        "cars/1.pt",
        "empty/notes.txt",
        ".hidden/1.pt",
        "1.pt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_finds_models_and_their_numbered_versions(folder: Path) -> None:
    catalogue = Catalogue(None, folder)
    assert catalogue.names() == ["cars", "faces"]
    assert list(catalogue.versions("faces")) == [2, 9, 10]
    assert catalogue.choose("faces", None)[:2] == (10, folder / "faces/10.pt")
    assert catalogue.choose("faces", 9)[:2] == (9, folder / "faces/9.pt2")


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("faces", 7, "must be one of 2, 9, 10, got 7"),
        ("dogs", None, "there is no"),
        ("../faces", None, "there is no"),
        ("twice", None, "must be one file, got 1.onnx and 1.pt"),
    ],
)
def test_rejects_versions_that_are_not_there(
    folder: Path, name: str, version: int | None, message: str
) -> None:
    (folder / "twice").mkdir()
    for suffix in ("pt", "onnx"):
        (folder / f"twice/1.{suffix}").touch()
    with pytest.raises(ArtifactError, match=message):
        Catalogue(None, folder).choose(name, version)


def test_one_file_is_one_model_without_versions(folder: Path) -> None:
    catalogue = Catalogue(folder / "1.pt", None)
    assert catalogue.names() == [UNNAMED]
    assert catalogue.choose(UNNAMED, None)[:2] == (0, folder / "1.pt")
    for missing in (Catalogue(folder / "2.pt", None), Catalogue(None, folder / "empty")):
        with pytest.raises(ArtifactError, match=r"no file 2.pt|must hold"):
            missing.check()
    Catalogue(None, folder).check()


def test_keeps_the_bytes_whatever_happens_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "1.pt"
    path.write_bytes(b"old" * 1_000_000)
    (tmp_path / "1.pt.sig").write_bytes(b"s" * 64)
    content = read_content(path)
    assert content.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert content.signature == b"s" * 64
    path.write_bytes(b"new")
    assert content.read() == b"old" * 1_000_000
    for change in (lambda: os.write(content.file, b"x"), lambda: os.ftruncate(content.file, 0)):
        with pytest.raises(PermissionError):
            change()
    content.close()


def test_an_empty_or_missing_file(tmp_path: Path) -> None:
    (tmp_path / "empty.pt").touch()
    assert read_content(tmp_path / "empty.pt").read() == b""
    for name, message in (("nothing.pt", "there is no file nothing.pt"), ("", "cannot be read")):
        with pytest.raises(ArtifactError, match=message):
            read_content(tmp_path / name)


@pytest.mark.parametrize("text", ["9", " 9\n"])
def test_a_pin_stands_for_the_newest_version(folder: Path, text: str) -> None:
    catalogue = Catalogue(None, folder)
    newest = catalogue.choose("faces", None)
    (folder / "faces/pin").write_text(text)
    pinned = catalogue.choose("faces", None)
    assert (pinned.number, pinned.is_news(newest.latest)) == (9, True)
    assert catalogue.choose("faces", 2).number == 2  # who names a version gets it
    (folder / "faces/pin").unlink()
    assert catalogue.choose("faces", None).is_news(pinned.latest)
    assert not catalogue.choose("faces", None).is_news(newest.latest)
    assert not catalogue.choose("faces", None).is_news((11, ()))  # a newer one was removed


@pytest.mark.parametrize("text", ["", "9.5", "x" * 1000, "-1", "7", "0"])
def test_a_pin_holds_a_version_that_is_there(folder: Path, text: str) -> None:
    (folder / "faces/pin").write_text(text)
    with pytest.raises(ArtifactError, match=r"must hold a version number|must be one of 2, 9, 10, got 7"):
        Catalogue(None, folder).choose("faces", None)


def test_reads_only_regular_files(tmp_path: Path) -> None:
    for name in ("1.pt", "2.pt.sig", "pin"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "2.pt").touch()
    (tmp_path / "3.pt").symlink_to("2.pt")
    with pytest.raises(ArtifactError, match=r"1\.pt cannot be read: it must be a regular file"):
        read_content(tmp_path / "1.pt")
    assert read_content(tmp_path / "2.pt").signature is None
    assert read_content(tmp_path / "3.pt").size == 0
    with pytest.raises(ArtifactError, match="must be a regular file"):
        Catalogue(None, tmp_path.parent).choose(tmp_path.name, None)
