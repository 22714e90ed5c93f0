"""docs/your_detector.md: its files and commands, run as they stand there."""

import shlex
import subprocess
from pathlib import Path

import pytest
from page_blocks import assert_prints, read_blocks
from programs import run_lensbox

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
    """Write the files of the page."""
    assert len(FILES) >= 3
    assert len(COMMANDS) >= 4
    folder = tmp_path_factory.mktemp("page")
    for text in FILES:
        name = text.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(text)
    return folder


# Each export starts a process. The first commands cover what only this page shows.
_QUICK = 3


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(*pair, marks=[pytest.mark.exhaustive] if index >= _QUICK else [])
        for index, pair in enumerate(COMMANDS)
    ],
)
def test_commands_print_the_output_of_the_page(command: str, output: str | None, folder: Path) -> None:
    words = shlex.split(command)
    assert words[:2] == ["lensbox", "export"]
    environment = {"LENSBOX_RUNNER": ""}
    result = run_lensbox(*words[1:], cwd=folder, code=None, env=environment, stderr=subprocess.STDOUT)
    if output is not None:
        assert_prints(result.stdout.replace(f"{folder}/", ""), output)
    written = folder / words[words.index("--output") + 1]
    failed = output is not None and "cannot be exported" in output
    assert written.exists() != failed, result.stdout
    if written.exists():
        assert load_artifact(written).self_test().passed
