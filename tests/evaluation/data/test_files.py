"""Files that labels name, and files in a folder."""

from pathlib import Path

import pytest

from lensbox.evaluation.data.files import files_below, find_file


@pytest.mark.parametrize(
    "name",
    [
        *("val/caf\u00e9.png", "val\\caf\u00e9.png", "./val/caf\u00e9.png", "val/cafe\u0301.png"),
        *("/data/val/caf\u00e9.png", "C:\\b\\val\\caf\u00e9.png"),
        *("file:///data/val/caf\u00e9.png", "https://example.com/val/caf\u00e9.png"),
    ],
)
def test_files_are_found_under_the_spellings_of_other_machines(tmp_path: Path, name: str) -> None:
    for wrong in (name.replace("val", "train"), 400 * "a", "a\0b", "val"):
        assert find_file([tmp_path / "none", tmp_path], wrong) is None
        (tmp_path / "val").mkdir(exist_ok=True)
    (tmp_path / "val" / "caf\u00e9.png").touch()
    found = find_file([tmp_path / "none", tmp_path], name)
    assert found is not None
    assert found[1].samefile(tmp_path / "val" / "caf\u00e9.png")


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    for name in ("here/own/a", "elsewhere/b"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for name, target in (("link", "../elsewhere"), ("again", "own"), ("loop", ".."), ("gone", "nowhere")):
        (tmp_path / "here" / name).symlink_to(target)
    names = [str(file.relative_to(tmp_path / "here")) for file in files_below(tmp_path / "here")]
    assert names == ["gone", "link/b", "own/a"]
