"""docs/your_detector.md: its files and commands, run as they stand there."""

import pytest
from page_blocks import Shell, assert_prints, read_blocks

from lensbox.runtime import load_artifact

BLOCKS = read_blocks("docs/your_detector.md")
COMMANDS = [
    (block.text.strip(), following.text if following.language == "text" else None)
    for block, following in zip(BLOCKS, [*BLOCKS[1:], BLOCKS[0]], strict=True)
    if block.language == "sh"
]
# Each export starts a process. An option and an error are what only this page shows.
_QUICK = (1, 2)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Write the files of the page."""
    folder = tmp_path_factory.mktemp("page")
    files = [text for language, text in BLOCKS if language == "python" and text.startswith("# ")]
    assert len(files) >= 3
    for text in files:
        (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
    return Shell(folder)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(*pair, marks=[pytest.mark.exhaustive] if index not in _QUICK else [])
        for index, pair in enumerate(COMMANDS)
    ],
)
def test_commands_print_the_output_of_the_page(command: str, output: str | None, shell: Shell) -> None:
    failed = output is not None and "cannot be exported" in output
    printed = shell.run(command, code=None)
    if output is not None:
        assert_prints(printed, output)
    words = command.split()
    written = shell.folder / words[words.index("--output") + 1]
    assert written.exists() != failed, printed
    if written.exists():
        assert load_artifact(written).self_test().passed
