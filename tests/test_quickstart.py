"""The blocks of docs/quickstart.md, run from first to last in a folder that looks like a clone."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from built_runner import REPOSITORY
from page_blocks import Shell, assert_prints, commands, read_blocks

SETUP, *STEPS = read_blocks("docs/quickstart.md")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Return a shell in a folder with the examples."""
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("build"))
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def test_commands_print_the_output_of_the_page(shell: Shell) -> None:
    """Run all steps in one test, as each step needs the one before."""
    ran = 0
    for block, following in zip(STEPS, [*STEPS[1:], None], strict=True):
        if block.language == "python":
            (shell.folder / "block.py").write_text(block.text)
            assert following is not None
            assert_prints(shell.run("python block.py"), following.text)
        for command, shown in commands(block.text):
            # Two steps show what twenty do.
            command = command.replace("curl ", "curl -s ").replace("train.py ", "train.py --steps 2 ")
            command = command.replace("call_service.py", f"call_service.py --url {shell.url}")
            assert_prints(shell.run(command), shown)
            ran += 1
    assert ran >= 10
