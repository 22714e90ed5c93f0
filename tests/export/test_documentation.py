"""docs/your_detector.md: its files and commands, run as they stand there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import lensbox.export.cli
from lensbox.runtime import load_artifact

EXPORT = Path(lensbox.export.cli.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "your_detector.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = [text for kind, text in BLOCKS if kind == "python" and text.startswith("# ")]
COMMANDS = [
    (text.strip(), BLOCKS[index + 1][1] if BLOCKS[index + 1 :] and BLOCKS[index + 1][0] == "text" else None)
    for index, (kind, text) in enumerate(BLOCKS)
    if kind == "sh"
]


def without_figures(text: str, folder: Path) -> list[str]:
    """Sizes, versions and hashes depend on torch; paths on the folder."""
    text = text.replace(f"{folder}/", "")
    return [re.sub(r"\b[0-9a-f.]{5,}\b|\b[0-9]+\b", "N", line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page."""
    folder = tmp_path_factory.mktemp("page")
    for text in FILES:
        name = text.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(text)
    return folder


def test_the_page_has_files_and_commands() -> None:
    assert len(FILES) >= 4
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize(("command", "output"), COMMANDS)
def test_the_command_prints_what_the_page_shows(command: str, output: str | None, folder: Path) -> None:
    words = shlex.split(command)
    assert words[:2] == ["python", "export/script_model.py"]
    result = subprocess.run(
        [sys.executable, str(EXPORT / "script_model.py"), *words[2:]],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if output is not None:
        assert without_figures(result.stdout, folder) == without_figures(output, folder)
    written = folder / words[words.index("--output") + 1]
    failed = output is not None and "cannot be exported" in output
    assert written.exists() != failed, result.stdout
    if written.exists():
        assert load_artifact(written).self_test().passed
