"""The base of all commands: their options, and their reports to stderr; results go to stdout."""

import contextlib
import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from lensbox.common.errors import ExitCode

Inputs = TypeVar("Inputs")


class _FilePath(click.Path):
    """A path that is not empty, as an unset variable of a shell is: `Path("")` is the current folder."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path. Raise BadParameter for an empty text."""
        if value == "":
            self.fail("must name a file or a folder, got ''", param, ctx)
        return super().convert(value, param, ctx)


# readable=False: click would report a file without permission as wrong usage; the command reports it better.
FILE = _FilePath(path_type=Path, readable=False)

# The option of every command that loads an artifact.
OPS = click.option(
    "--ops",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Shared library with operators of the detector, loaded before the detector. Its code runs with all "
    "your rights. May be repeated.",
)


class Command(click.Command):
    """A command whose repeatable options take several values, unless the command has positional arguments.

    `--data a b` is short for `--data a --data b`, so that shells can expand `--data shards/*.tar`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with the name of a repeatable option before each of its further values."""
        repeatable = {name for parameter in self.params if parameter.multiple for name in parameter.opts}
        if any(isinstance(parameter, click.Argument) for parameter in self.params):
            repeatable.clear()
        spread, option = [], ""
        for before, word in itertools.pairwise(["", *args]):
            if word.startswith("-"):
                option = word.partition("=")[0]
            elif option in repeatable and before != option:
                spread.append(option)
            spread.append(word)
        return super().parse_args(ctx, spread)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A reader that closes the pipe of stdout, such as `head`, ends it: no failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Without this the interpreter reports the pipe when it flushes stdout at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.GOOD


def require_at_most_one(options: Mapping[str, Any], *names: str) -> None:
    """Raise UsageError if more than one of these options is given."""
    given = [f"--{name}" for name in names if options[name] not in (None, False)]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} must not be given together")


def check_source(
    context: click.Context, url: str | None, of_artifact: Collection[str], of_service: Collection[str]
) -> None:
    """Raise UsageError for options of a service without --url, and for options of an artifact with it."""
    useless, reason = (
        (of_service, "must come with --url") if url is None else (of_artifact, "is not for --url")
    )
    for option in context.command.params:
        name = option.name or ""
        if name in useless and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} {reason}")


def batch_sizes(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return an option's `type`: sizes with commas, such as 1,8,32, as ascending numbers up to `most`."""

    def convert(text: str) -> tuple[int, ...]:
        sizes = text.split(",") if text else []
        if not all(size.isdecimal() and 1 <= int(size) <= most for size in sizes):
            raise click.BadParameter(f"must be whole numbers from 1 to {most}, such as 1,8,32, got {text!r}")
        return tuple(sorted(set(map(int, sizes))))

    return convert


def options_of(inputs: type, repeatable: Collection[str] = ()) -> Callable[[Any], Any]:
    """Return a decorator that gives a command an option for each field of a pydantic dataclass.

    Fields without a description are no options. repeatable: fields for which a command takes several values
    to name the mistake itself.
    """
    from pydantic import TypeAdapter  # late, since `lensbox --help` has no use for it

    schema = TypeAdapter(inputs).json_schema()

    def decorate(command: Any) -> Any:
        for name, field in reversed(schema["properties"].items()):
            if "description" in field:
                is_required = name in schema.get("required", ())
                command = _option(name, field, is_required, name in repeatable)(command)
        return command

    return decorate


def _option(name: str, field: dict[str, Any], required: bool, many: bool) -> Callable[[Any], Any]:
    """Return the option of a field, by its part of the JSON schema."""
    kind = next(one for one in field.get("anyOf", [field]) if one["type"] != "null")
    is_array = kind["type"] == "array"
    kind = kind["items"] if is_array else kind
    flag = f"--{name.replace('_', '-')}"
    return click.option(
        f"{flag}/--no-{flag[2:]}" if kind["type"] == "boolean" else flag,
        name,
        type=click.Choice(kind["enum"]) if "enum" in kind else _TYPES[kind.get("format", kind["type"])],
        metavar="JSON" if kind["type"] == "object" else "PATH..." if is_array else None,
        help=field["description"],
        default=field.get("default"),
        required=required,
        multiple=is_array or many,
    )


def read_options(inputs: Callable[..., Inputs], values: Mapping[str, Any]) -> Inputs:
    """Return a pydantic dataclass of a command's options. Raise UsageError, which names the wrong option."""
    from pydantic import ValidationError

    from lensbox.common.fields import first_reason

    try:
        return inputs(**values)
    except ValueError as error:
        sentence = first_reason(error) if isinstance(error, ValidationError) else str(error)
        raise click.UsageError(as_typed(sentence, values)) from error


def as_typed(message: str, names: Iterable[str]) -> str:
    """Return a message with the options of fields in place of their names."""
    pattern = r"(?<![\w/.-])[a-z]+(_[a-z]+)+(?![\w/.-])|^[a-z]+"
    options = {name: "--" + name.replace("_", "-") for name in names}
    return re.sub(pattern, lambda name: options.get(name[0], name[0]), message)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"must be JSON, got {text!r}") from error


_TYPES: dict[str, Any] = {
    "boolean": bool,
    "integer": int,
    "number": float,
    "object": _json,
    "path": FILE,
    "string": str,
}


def _name_level(record: logging.LogRecord) -> bool:
    record.level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
    return True


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Configure logging for a command within the context, then restore it for callers from Python."""
    root, package = logging.getLogger(), logging.getLogger("lensbox")
    handlers, levels = root.handlers[:], (root.level, package.level)
    start_reporting()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for logger, level in zip((root, package), levels, strict=True):
            logger.setLevel(level)


def start_reporting(level: int | str = logging.INFO, as_log: bool = False) -> None:
    """Log to stderr: Lensbox's records from `level` on, warnings and errors of other libraries.

    as_log: start each line with time and level, for commands that run for long.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_name_level)
    form = "%(asctime)s %(levelname)s: %(message)s" if as_log else "%(level)s%(message)s"
    handler.setFormatter(logging.Formatter(form))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("lensbox").setLevel(level)
