"""docs/your_detector.md: its files and commands, run as they stand there."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import assert_prints, read_blocks

from lensbox.runtime import load_artifact

BLOCKS = read_blocks("docs/your_detector.md")
FILES = [text for kind, text in BLOCKS if kind == "python" and text.startswith("# ")]
COMMANDS = [
    (text.strip(), BLOCKS[index + 1][1] if BLOCKS[index + 1 :] and BLOCKS[index + 1][0] == "text" else None)
    for index, (kind, text) in enumerate(BLOCKS)
    if kind == "sh"
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page."""
    folder = tmp_path_factory.mktemp("page")
    for text in FILES:
        name = text.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(text)
    return folder


def test_the_page_has_files_and_commands() -> None:
    assert len(FILES) >= 3
    assert len(COMMANDS) >= 4


# Each export is a process of its own; the first commands show what is particular to the page.
_QUICK = 3


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(*pair, marks=[pytest.mark.exhaustive] if index >= _QUICK else [])
        for index, pair in enumerate(COMMANDS)
    ],
)
def test_the_command_prints_what_the_page_shows(command: str, output: str | None, folder: Path) -> None:
    words = shlex.split(command)
    assert words[:2] == ["lensbox", "export"]
    result = subprocess.run(
        [sys.executable, "-m", "lensbox.common", *words[1:]],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "LENSBOX_RUNNER"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if output is not None:
        assert_prints(result.stdout.replace(f"{folder}/", ""), output)
    written = folder / words[words.index("--output") + 1]
    failed = output is not None and "cannot be exported" in output
    assert written.exists() != failed, result.stdout
    if written.exists():
        assert load_artifact(written).self_test().passed
