"""Likely mistakes on the command line: the exit code, and the name and value at fault."""

from pathlib import Path

import pytest

from lensbox.common.main import main
from lensbox.model.weights_file import SHIPPED_WEIGHTS


@pytest.mark.parametrize(
    ("command", "code", "part"),
    [
        ("train --data photos", 4, "examples/train.py"),
        ("train --data boxes.csv", 4, "boxes.csv"),
        (f"evaluate --data photos --artifact {SHIPPED_WEIGHTS}", 3, "lensbox export --weights"),
        (f"info {SHIPPED_WEIGHTS}", 3, "lensbox export --weights"),
        (f"export --weights {__file__}", 4, "test_mistakes.py"),
        ("serve detector.pt", 2, "such as --artifact"),
        ("bench serve --seconds 0", 2, "x>=1"),
        ("export --output /proc/detector.pt", 2, "/proc/detector.pt"),
        ("export --model my_detector.py:make", 2, "without .py"),
    ],
)
def test_names_the_mistake(
    command: str,
    code: int,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "boxes.csv").write_text("file,x1,y1,x2,y2\n")
    (tmp_path / "my_detector.py").write_text("def make():\n    pass\n")
    assert main(command.split()) == code
    assert part in capfd.readouterr().err
