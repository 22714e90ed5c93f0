"""examples/demo.py: three doors with the same boxes."""

import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from programs import REPOSITORY, built_runner

DEMO = runpy.run_path(str(REPOSITORY / "examples" / "demo.py"))
main, DemoError = DEMO["main"], DEMO["DemoError"]


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    paths = {"--runner": built_runner(), "--output": tmp_path / "out", "--artifact": tmp_path / "detector.pt"}
    return [str(word) for pair in paths.items() for word in pair]


def test_three_doors_find_the_same_boxes(
    arguments: list[str], shipped_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(shipped_path, tmp_path / "detector.pt")
    main(arguments, standalone_mode=False)
    text = capfd.readouterr().out
    rows = re.findall(r"photos/(\w+)\.\w+ +0\.\d{3}(?: +\d+\.\d){4}$", text, re.MULTILINE)
    assert rows == ["grace_hopper", "astronaut"]
    losses = re.findall(r"^(C\+\+|HTTP): .*loss .*?(0\.\d{4})", text, re.MULTILINE)
    assert [door for door, _ in losses] == ["C++", "HTTP"]
    assert losses[0][1] == losses[1][1]
    assert float(losses[0][1]) < 0.3
    assert "\nPython: the same boxes within" in text
    with PIL.Image.open(tmp_path / "out" / "demo.png") as picture:
        assert picture.size == (437 + DEMO["GAP"] + 512, 512)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["demo.png", "photos"]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "as many faces"),
        ([{"box": [1, 2, 3, 4.1], "score": 0.5}], "0.1 px"),
        ([{"box": [1, 2, 3, 4], "score": 0.6}], "0.1 off"),
    ],
)
def test_other_boxes_end_the_demo(found: list[dict[str, Any]], message: str) -> None:
    expected = [[{"box": [1, 2, 3, 4], "score": 0.5}]]
    assert "0 px" in DEMO["require_same"]("Python", expected, expected)
    with pytest.raises(DemoError, match=message):
        DEMO["require_same"]("Python", [found], expected)


def test_demo_reports_a_failed_or_missing_runner(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DemoError, match="lensbox_runner detect failed with exit code 3"):
        main(arguments, standalone_mode=False)
    with pytest.raises(SystemExit):
        main(["--runner", str(tmp_path / "absent")])
    assert "make runner" in capsys.readouterr().err
