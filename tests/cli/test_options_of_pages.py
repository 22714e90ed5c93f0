"""Every option of `lensbox` in a command of a page exists."""

import functools
import re
from collections.abc import Iterator

import click
from page_blocks import read_blocks
from programs import REPOSITORY

from lensbox.cli.main import COMMANDS

PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md", "bench/*.md", "cpp_runtime/*.md", "model/*.md")
    for path in REPOSITORY.glob(pattern)
)


CALL = re.compile(r"(?:\$ )?(?:\w+=\S+ )*(?:\S+/bin/)?lensbox (\w+)\b(.*)")


def commands_of(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the words of each call of `lensbox` in the shell blocks of a page."""
    for language, text in read_blocks(page):
        if language in ("sh", "console"):
            for line in text.replace("\\\n", " ").splitlines():
                for part in re.split(r"[|;&<>]", line.split(" #")[0]):
                    if found := CALL.match(part.strip()):
                        yield found[1], re.findall(r"--[a-z][\w-]*", found[2])


@functools.cache
def options_of(name: str) -> set[str]:
    command = COMMANDS[name].load()
    if isinstance(command, click.Group):  # bench: of the project's benchmarks and of FILE
        from lensbox.cli.bench import bench

        leaves: list[click.Command] = [*command.commands.values(), bench]
    else:
        leaves = [command]
    named = {option for leaf in leaves for parameter in leaf.params for option in parameter.opts}
    negative = {option for leaf in leaves for parameter in leaf.params for option in parameter.secondary_opts}
    return named | negative | {"--help"}


def test_pages_name_options_that_exist() -> None:
    checked = 0
    for page in PAGES:
        for name, words in commands_of(page):
            assert name in COMMANDS, f"{page}: lensbox {name}"
            unknown = set(words) - options_of(name)
            assert not unknown, f"{page}: lensbox {name} has no option {', '.join(sorted(unknown))}"
            checked += len(words)
    assert checked > 150
