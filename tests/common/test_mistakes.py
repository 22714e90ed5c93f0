"""Messages of the commands for likely mistakes."""

from pathlib import Path

import pytest

from lensbox.common.main import main
from lensbox.model.weights_file import SHIPPED_WEIGHTS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with photographs without labels, a table and a detector in Python."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "boxes.csv").write_text("file,x1,y1,x2,y2\n")
    (tmp_path / "my_detector.py").write_text("def make():\n    pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("train --data photos", 4, "examples/train.py makes it of a table"),
        ("train --data boxes.csv", 4, "must be a folder or an uncompressed tar file"),
        (
            f"evaluate --data photos --artifact {SHIPPED_WEIGHTS}",
            3,
            "holds weights: `lensbox export --weights` takes it",
        ),
        (f"info {SHIPPED_WEIGHTS}", 3, "holds weights: `lensbox export --weights` takes it"),
        ("serve detector.pt", 2, "(detector.pt): each value follows its option, such as --artifact"),
        ("export detector.pt", 2, "(detector.pt): each value follows its option"),
        ("bench serve --seconds 0", 2, "0 is not in the range x>=1"),
        ("export --output /proc/detector.pt", 2, "got /proc/detector.pt: No such file or directory"),
        ("export --model my_detector.py:make", 2, "a module is named without .py: my_detector"),
    ],
)
def test_the_message_says_what_to_do(
    folder: Path, capfd: pytest.CaptureFixture[str], command: str, code: int, message: str
) -> None:
    assert main(command.split()) == code
    assert message in capfd.readouterr().err


def test_an_artifact_given_for_weights(
    folder: Path, artifact_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--weights", str(artifact_path)]) == 4
    assert "is it an artifact?" in capfd.readouterr().err
