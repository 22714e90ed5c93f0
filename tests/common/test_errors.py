"""Exit codes and reasons."""

import re

from built_runner import REPOSITORY

from lensbox.common.errors import ExitCode, system_reason


def test_the_page_lists_every_exit_code() -> None:
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(ExitCode)


def test_a_reason_has_no_errno_and_no_path() -> None:
    assert system_reason(FileNotFoundError(2, "No such file or directory", "a.jpg")) == (
        "No such file or directory"
    )
    assert system_reason(TimeoutError()) == "TimeoutError"
