"""The sample photographs and their tables."""

import csv
from pathlib import Path

import PIL.Image
import pytest

from lensbox.cli import samples


def test_tables_name_the_photographs_and_drawn_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["samples", str(tmp_path)])
    samples.main()
    rows: dict[str, list[str]] = {}
    for table, count in (("train.csv", 7), ("val.csv", 2)):
        with (tmp_path / table).open(newline="") as file:
            head, *found = csv.reader(file)
        assert (head, len(found)) == (["file", "x1", "y1", "x2", "y2"], count)
        rows |= {row[0]: row[1:] for row in found}
    assert rows["astronaut.png"] == ["181", "75", "272", "178"]
    assert rows["cat.png"] == [""] * 4
    for name in rows:
        with PIL.Image.open(tmp_path / name) as picture:
            picture.load()


def test_names_the_extra_and_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.argv", ["samples", str(tmp_path / "file" / "below")])
    with pytest.raises(SystemExit):
        samples.main()
    assert f"{tmp_path / 'file' / 'below'} cannot be written: Not a directory" in capsys.readouterr().err
    monkeypatch.setattr(samples, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["samples", str(tmp_path)])
    with pytest.raises(SystemExit):
        samples.main()
    assert "No module named 'matplotlib': pip install 'lensbox[demo]'" in capsys.readouterr().err
