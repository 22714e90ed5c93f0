"""`lensbox detect`: detect in image files, with an artifact or a running service."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from lensbox.cli.annotate import annotate_file
from lensbox.cli.command import FILE, OPS, Command, checked, fraction
from lensbox.cli.output import FORMATS, CocoResults, DetectionTable, echo, json_line
from lensbox.cli.source import Answer, Answers, DetectionSource, artifact_source, service_source
from lensbox.client import Client, ServiceError
from lensbox.common.detect_options import check_device, tile_spec
from lensbox.common.errors import ExitCode, InputError, LensboxError, system_reason

_COUNT = click.IntRange(1, 4096)
# Options of an artifact in this process, and options of a service.
_IN_PROCESS = ("artifact", "device", "batch", "ops", "public_key")
_OF_SERVICE = ("api_key", "timeout", "connections")
_QUESTION = ("score_threshold", "iou_threshold", "orientation", "tiles")
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


class ListedFile(NamedTuple):
    """An image file: its path, and its name for a drawing. fault: why there is nothing to read."""

    path: Path
    name: str
    fault: InputError | None = None


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--recursive", is_flag=True, help="Also look into folders in folders.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    show_default="table on a terminal, else jsonl",
    help="Output format.",
)
@click.option(
    "--coco-file", type=FILE, metavar="FILE", help="For --format coco: COCO JSON with the ids of the images."
)
@click.option(
    "--annotate",
    type=click.Path(path_type=Path, readable=False, file_okay=False),
    metavar="DIR",
    help="Write each picture with its boxes to this folder.",
)
@click.option("--score-threshold", type=fraction, metavar="0..1", help="Default: the artifact's.")
@click.option("--iou-threshold", type=fraction, metavar="0..1", help="Default: the artifact's.")
@click.option(
    "--orientation",
    type=click.Choice(["exif", "stored"]),
    help="exif: turn photographs upright; stored: leave them. Default: the artifact's.",
)
@click.option(
    "--tiles",
    type=checked(tile_spec),
    metavar="auto|SIZE[,OVERLAP]",
    help="Detect small objects in overlapping tiles of large photographs; auto: tiles of the canvas's size.",
)
@click.option(
    "--artifact",
    type=FILE,
    show_default="the shipped face detector",
    help="The artifact to run in this process.",
)
@click.option(
    "--device",
    type=checked(check_device),
    default="auto",
    metavar="NAME",
    help="cpu, cuda, cuda:N; auto: cuda where torch sees a GPU.",
)
@click.option("--batch", type=_COUNT, show_default="8, and 64 on a GPU", help="Images per batch.")
@OPS
@click.option("--public-key", type=FILE, help="Accept only artifacts signed with this key, a PEM file.")
@click.option("--url", help="Use a running service, such as http://127.0.0.1:8000.")
@click.option("--api-key", envvar="LENSBOX_API_KEY", show_envvar=True, help="Key of the service.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.001, 86_400),
    default=30.0,
    help="Seconds for an answer of the service.",
)
@click.option("--connections", type=_COUNT, default=8, help="Concurrent requests to the service.")
@click.pass_context
def detect(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    recursive: bool,
    format_name: str | None,
    coco_file: Path | None,
    annotate: Path | None,
    **options: Any,
) -> ExitCode:
    """Detect objects in image files and folders; print labels, scores, and boxes in pixels.

    Run an artifact in this process, or use a running service (--url) with the same results. A file that
    cannot be read is reported on stderr, and the exit code is 4; all other files are processed.
    """
    _check_options(context, options)
    if (format_name == "coco") != (coco_file is not None):
        raise click.UsageError("--format coco and --coco-file must be given together")
    listed = list_files(files, recursive)
    if annotate is not None:
        _check_drawings(annotate, files, recursive, listed)
    readable = [file.path for file in listed if file.fault is None]
    code = ExitCode.GOOD
    is_shown = len(listed) > 1 and sys.stderr.isatty() and not sys.stdout.isatty()
    with (
        _open(options, readable) as source,
        contextlib.closing(source.detect(readable)) as results,
        click.progressbar(
            length=len(listed), file=sys.stderr, show_pos=True, label="detecting", hidden=not is_shown
        ) as bar,
    ):
        paths, classes = [file.path for file in listed], source.metadata.get("classes", ())
        name = format_name or ("table" if sys.stdout.isatty() else "jsonl")
        coco = coco_file and CocoResults(coco_file, paths, classes)
        form = coco or (json_line if name == "jsonl" else DetectionTable(paths, classes))
        for file in listed:
            result = file.fault or next(results)
            if annotate is not None and not isinstance(result, LensboxError):
                drawing, orientation = annotate / f"{file.name}.png", options["orientation"]
                try:
                    annotate_file(file.path, result, source.metadata, orientation, drawing)
                except InputError as error:
                    result = error
            shown: Answer | str
            if isinstance(result, LensboxError):
                if isinstance(result, ServiceError) and not result.is_of_one_image:
                    raise result
                code, shown = ExitCode.BAD_INPUT, str(result)
                shown = shown if str(file.path) in shown else f"{file.path}: {shown}"
                echo(f"{context.command_path}: {shown}\n", err=True)
            else:
                shown = result
            echo(form(file.path, shown))
            bar.update(1)
        if coco:
            echo(coco.text())
    return code


def list_files(arguments: Sequence[Path], recursive: bool) -> list[ListedFile]:
    """Return the named files, and the image files of named folders sorted by name.

    Image files end in one of ENDINGS (case-insensitive) and do not begin with a dot. recursive: also list
    folders in a folder, except links and names that begin with a dot. Raise UsageError for a URL.
    """
    files: list[ListedFile] = []
    for argument in arguments:
        if re.match(r"https?:/", str(argument)):
            raise click.UsageError(
                f"FILES must be files or folders, got the URL {argument}: download it first (curl -O); "
                "--url is the address of a service"
            )
        if os.path.isdir(argument):  # noqa: PTH112 (False without permission: reading it reports that)
            files += _of_folder(argument, recursive)
        elif os.path.lexists(argument) or not os.access(argument.parent, os.X_OK):
            files.append(ListedFile(argument, argument.name))
        else:
            fault = InputError(f"there is no file {argument.name} in {argument.parent.absolute()}")
            files.append(ListedFile(argument, argument.name, fault))
    return files


def _of_folder(folder: Path, recursive: bool) -> list[ListedFile]:
    try:
        next(folder.iterdir(), None)  # `glob` says nothing of a folder without permission
    except OSError as error:
        return [ListedFile(folder, "", InputError(f"the folder cannot be read: {system_reason(error)}"))]
    names = (path.relative_to(folder) for path in folder.glob("**/*" if recursive else "*"))
    shown = (name for name in names if not any(part.startswith(".") for part in name.parts))
    found = sorted(name for name in shown if name.suffix.lower() in ENDINGS and (folder / name).is_file())
    hint = "" if recursive else " (--recursive also looks into the folders in it)"
    fault = InputError(f"no file in this folder ends with {', '.join(ENDINGS)}{hint}")
    return [ListedFile(folder / name, str(name)) for name in found] or [ListedFile(folder, "", fault)]


def _check_options(context: click.Context, options: dict[str, Any]) -> None:
    """Raise UsageError for options of a service without --url, and for options of an artifact with --url."""
    useless, reason = (
        (_OF_SERVICE, "must come with --url") if options["url"] is None else (_IN_PROCESS, "is not for --url")
    )
    for name in useless:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} {reason}")


def _check_drawings(
    folder: Path, arguments: Sequence[Path], recursive: bool, files: Sequence[ListedFile]
) -> None:
    """Raise UsageError if a drawing would be written twice, or would be an image of the next run."""
    place = folder.resolve()
    for argument in map(Path.resolve, arguments):
        if place == argument or (recursive and place.is_relative_to(argument)):
            raise click.UsageError(f"--annotate must not be a folder of the images, got {folder}")
    names = [file.name for file in files if file.fault is None]
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(
            f"--annotate would write {folder / twice[0]}.png twice: give the files one by one"
        )


@contextlib.contextmanager
def _open(options: dict[str, Any], readable: Sequence[Path]) -> Iterator[DetectionSource]:
    """Yield the source of detections; without files to read, one that loads nothing."""
    question = {name: options[name] for name in _QUESTION}
    if not readable:
        yield DetectionSource(_nothing, {})
    elif options["url"] is None:
        others = {name: options[name] for name in _IN_PROCESS if name != "artifact"}
        yield artifact_source(options["artifact"], question, **others)
    else:
        url, key, timeout = options["url"], options["api_key"] or None, options["timeout"]
        try:
            client = Client(url, key, timeout, connections=options["connections"])
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        with client:
            yield service_source(client, question)


def _nothing(files: Sequence[Path]) -> Answers:
    yield from ()
