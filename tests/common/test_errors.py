"""The exit codes that all commands share."""

import re

from programs import REPOSITORY

from lensbox.common.errors import ExitCode


def test_the_page_lists_every_exit_code() -> None:
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(ExitCode)
