"""`lensbox detect`: detect in image files, with an artifact or a running service."""

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from lensbox.cli.command import FILE, OPS, Command, check_source, options_of, read_options
from lensbox.cli.output import CocoResults, DetectionTable, annotate_file, echo, json_line
from lensbox.cli.source import Answer, ask_artifact, ask_service, open_artifact, open_client
from lensbox.common.detections import check_device, tile_spec
from lensbox.common.errors import ExitCode, InputError, LensboxError, system_reason
from lensbox.common.fields import Fraction, Orientation, described
from lensbox.common.pictures import IMAGE_SUFFIXES

# Options of an artifact in this process, of a service, and of both.
_IN_PROCESS = ("artifact", "device", "batch", "ops", "public_key")
_OF_SERVICE = ("api_key", "timeout", "connections")
_QUESTION = ("score_threshold", "iou_threshold", "orientation", "tiles")


class ListedFile(NamedTuple):
    """An image file: its path, and its name for a drawing. fault: why there is nothing to read."""

    path: Path
    name: str
    fault: InputError | None = None


@dataclass(frozen=True, config=ConfigDict(allow_inf_nan=False))
class DetectOptions:
    """The options of `lensbox detect`, besides `--ops` and the key of a service."""

    recursive: bool = described(False, "Also look into folders in folders.")
    format: Literal["table", "jsonl", "coco"] | None = described(
        None, "Output format. Default: table on a terminal, else jsonl."
    )
    coco_file: Path | None = described(None, "For --format coco: COCO JSON with the ids of the images.")
    annotate: Path | None = described(None, "Write each picture with its boxes to this folder.")
    score_threshold: Fraction | None = described(None, "0 to 1. Default: the artifact's.")
    iou_threshold: Fraction | None = described(None, "0 to 1. Default: the artifact's.")
    orientation: Orientation | None = described(
        None, "exif: turn photographs upright; stored: leave them. Default: the artifact's."
    )
    tiles: str | None = described(
        None,
        "auto, SIZE or SIZE,OVERLAP: detect small objects in overlapping tiles of large photographs; auto: "
        "tiles of the canvas's size.",
    )
    artifact: Path | None = described(
        None, "The artifact to run in this process. Default: the shipped face detector."
    )
    device: str = described("auto", "cpu, cuda, cuda:N; auto: cuda where torch sees a GPU.")
    batch: int | None = described(None, "Images per batch. Default: 8, and 64 on a GPU.", ge=1, le=4096)
    public_key: Path | None = described(None, "Accept only artifacts signed with this key, a PEM file.")
    url: str | None = described(None, "Use a running service, such as http://127.0.0.1:8000.")
    timeout: float = described(30.0, "Seconds for an answer of the service.", ge=0.001, le=86_400)
    connections: int = described(8, "Concurrent requests to the service.", ge=1, le=1000)

    def __post_init__(self) -> None:
        check_device(self.device)
        if self.tiles is not None:
            tile_spec(self.tiles)
        if (self.format == "coco") != (self.coco_file is not None):
            raise ValueError("--format coco and --coco-file must be given together")
        if self.annotate is not None and self.annotate.exists() and not self.annotate.is_dir():
            raise ValueError(f"annotate must be a folder, got {self.annotate}")


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, type=FILE)
@options_of(DetectOptions)
@OPS
@click.option("--api-key", envvar="LENSBOX_API_KEY", show_envvar=True, help="Key of the service.")
@click.pass_context
def detect(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    ops: tuple[Path, ...],
    api_key: str | None,
    **values: Any,
) -> ExitCode:
    """Detect objects in image files and folders; print labels, scores, and boxes in pixels.

    Run an artifact in this process, or use a running service (--url) with the same results. A file that
    cannot be read is reported on stderr, and the exit code is 4; all other files are processed.
    """
    options = read_options(DetectOptions, values)
    check_source(context, options.url, _IN_PROCESS, _OF_SERVICE)
    listed = list_files(files, options.recursive)
    if options.annotate is not None:
        _check_drawings(options.annotate, files, options.recursive, listed)
    paths, readable = [file.path for file in listed], [file.path for file in listed if file.fault is None]
    code = ExitCode.GOOD
    is_shown = len(listed) > 1 and sys.stderr.isatty() and not sys.stdout.isatty()
    with (
        _open(options, api_key, ops, readable) as (metadata, answers),
        click.progressbar(
            listed, file=sys.stderr, show_pos=True, label="detecting", hidden=not is_shown
        ) as files_in_turn,
    ):
        classes = metadata.get("classes", ())
        name = options.format or ("table" if sys.stdout.isatty() else "jsonl")
        coco = options.coco_file and CocoResults(options.coco_file, paths, classes)
        form = coco or (json_line if name == "jsonl" else DetectionTable(paths, classes))
        for file in files_in_turn:
            answer = file.fault or next(answers)
            if options.annotate is not None and not isinstance(answer, LensboxError):
                drawing = options.annotate / f"{file.name}.png"
                try:
                    annotate_file(file.path, answer, metadata, options.orientation, drawing)
                except InputError as error:
                    answer = error
            if isinstance(answer, LensboxError):
                code, message = ExitCode.BAD_INPUT, str(answer)
                message = message if str(file.path) in message else f"{file.path}: {message}"
                echo(f"{context.command_path}: {message}\n", err=True)
                answer = {"error": message}
            echo(form(file.path, answer))
        if coco:
            echo(coco.text())
    return code


def list_files(arguments: Sequence[Path], recursive: bool) -> list[ListedFile]:
    """Return the named files, and the image files of named folders sorted by name.

    Image files end in one of IMAGE_SUFFIXES (case-insensitive) and do not begin with a dot. recursive: also
    list folders in a folder, except links and names that begin with a dot. Raise UsageError for a URL.
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
    images = (name for name in shown if name.suffix.lower() in IMAGE_SUFFIXES)
    found = sorted(name for name in images if (folder / name).is_file())
    hint = "" if recursive else " (--recursive also looks into the folders in it)"
    fault = InputError(f"no file in this folder ends with {', '.join(IMAGE_SUFFIXES)}{hint}")
    return [ListedFile(folder / name, str(name)) for name in found] or [ListedFile(folder, "", fault)]


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
def _open(
    options: DetectOptions, api_key: str | None, ops: Sequence[Path], files: Sequence[Path]
) -> Iterator[tuple[Mapping[str, Any], Iterator[Answer | LensboxError]]]:
    """Yield the artifact's metadata, and an answer for each file. Without files, load nothing."""
    question = {name: getattr(options, name) for name in _QUESTION}
    if not files:
        yield {}, iter(())
    elif options.url is None:
        artifact = open_artifact(options.artifact, options.device, public_key=options.public_key, ops=ops)
        with contextlib.closing(ask_artifact(artifact, files, question, options.batch)) as answers:
            yield json.loads(artifact.metadata.to_json()), answers
    else:
        client = open_client(options.url, api_key, timeout=options.timeout, connections=options.connections)
        with client, contextlib.closing(ask_service(client, files, question)) as answers:
            yield client.metadata(), answers
