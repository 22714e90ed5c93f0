"""Sample photographs: boxes, pixels, and errors of the command."""

from pathlib import Path

import PIL.Image
import pytest

from lensbox.cli import samples as command
from lensbox.cli.samples import DRAWN_BOXES, save_photos


def test_portraits_have_boxes(tmp_path: Path) -> None:
    for path in save_photos(tmp_path):
        with PIL.Image.open(path) as image:
            x1, y1, x2, y2 = DRAWN_BOXES[path.name]
            assert 0 <= x1 < x2 <= image.width
            assert 0 <= y1 < y2 <= image.height


@pytest.mark.parametrize(
    ("folder", "has_packages", "code", "message"),
    [
        ("photos", False, 3, "come with matplotlib and skimage: pip install 'lensbox[demo]'"),
        ("file", True, 2, "folder must be a folder, got the file"),
        ("file/photos", True, 3, "/file/photos cannot be written: "),
    ],
)
def test_errors(
    folder: str,
    has_packages: bool,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    if not has_packages:
        monkeypatch.setattr(command, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["samples", str(tmp_path / folder)])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == code
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
