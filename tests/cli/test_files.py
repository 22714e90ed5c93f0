"""Files and folders of a command line."""

from pathlib import Path

import pytest

from lensbox.cli.files import list_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.jpg", "a.PNG", ".hidden.jpg", "note.txt", "below/c.webp", ".git/d.jpg", "empty/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "below")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "recursive", "paths"),
    [
        ("note.txt b.jpg", False, ["note.txt", "b.jpg"]),
        (".", False, ["a.PNG", "b.jpg"]),
        (". below", True, ["a.PNG", "b.jpg", "below/c.webp", "below/c.webp"]),
    ],
)
def test_lists_files_and_folders(folder: Path, arguments: str, recursive: bool, paths: list[str]) -> None:
    listed = list_files([Path(word) for word in arguments.split()], recursive)
    assert [str(file.path) for file in listed] == paths
    assert [file.fault for file in listed] == [None] * len(paths)
