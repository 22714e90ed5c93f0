"""`lensbox detect`: detect in image files, with an artifact or a running service."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lensbox.cli.command import FILE, OPS, Command, CommandError, fraction, seconds
from lensbox.cli.detector import Detector, Question, artifact_detector, service_detector
from lensbox.cli.file_list import ListedFile, is_folder, list_files
from lensbox.cli.output import FORMATS, CocoResults, check_drawings, draw, make_format, progress
from lensbox.client.answers import ServiceError
from lensbox.client.client import Client
from lensbox.common.detect_options import DECODE, tile_spec
from lensbox.common.detections import ImageDetections
from lensbox.common.errors import ExitCode, InputError, LensboxError

_COUNT = click.IntRange(1, 4096)
# Options of an artifact in this process, and options of a service.
_IN_PROCESS = ("artifact", "device", "batch", "decode", "decode_threads", "ops", "public_key")
_OF_SERVICE = ("api_key", "timeout", "connections")


def _device(text: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", text):
        raise click.BadParameter(f"must be auto, cpu, cuda or cuda:N, got {text}")
    return text


def _tiles(text: str) -> str:
    try:
        tile_spec(text)
    except ValueError as error:
        raise click.BadParameter(str(error).removeprefix("tiles ")) from error
    return text


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
    "--annotate", type=FILE, metavar="DIR", help="Write each picture with its boxes to this folder."
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
    type=_tiles,
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
    type=_device,
    default="auto",
    metavar="NAME",
    help="cpu, cuda, cuda:N; auto: cuda where torch sees a GPU.",
)
@click.option("--batch", type=_COUNT, show_default="8, and 64 on a GPU", help="Images per batch.")
@click.option(
    "--decode",
    type=click.Choice(DECODE),
    default="auto",
    help="Decoder of JPEG files; auto: an H100's or H200's hardware in batches of 16 or more.",
)
@click.option(
    "--decode-threads",
    type=_COUNT,
    show_default="one per CPU, at most 8; 2 if the GPU decodes",
    help="Threads that read files.",
)
@OPS
@click.option("--public-key", type=FILE, help="Accept only artifacts signed with this key, a PEM file.")
@click.option("--url", help="Use a running service, such as http://127.0.0.1:8000.")
@click.option("--api-key", envvar="LENSBOX_API_KEY", show_envvar=True, help="Key of the service.")
@click.option("--timeout", type=seconds, default=30.0, help="Seconds for an answer of the service.")
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
    if annotate is not None and any(is_folder(folder) and _is_same(folder, annotate) for folder in files):
        raise click.UsageError(f"--annotate must not be a folder of the images, got {annotate}")
    listed = list_files(files, recursive, annotate)
    if annotate is not None:
        check_drawings(annotate, listed)
    with _detector(options) as detector:
        try:
            return _detect(context.command_path, listed, detector, format_name, coco_file, annotate)
        except BrokenPipeError:  # the reader has closed the pipe: not a failure
            # Without this the interpreter reports the pipe when it flushes stdout at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.GOOD


def _check_options(context: click.Context, options: dict[str, Any]) -> None:
    """Raise UsageError for options of a service without --url, and for options of an artifact with --url."""
    useless, reason = (
        (_OF_SERVICE, "must come with --url") if options["url"] is None else (_IN_PROCESS, "is not for --url")
    )
    for name in useless:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} {reason}")


def _is_same(folder: Path, other: Path) -> bool:
    return other.exists() and folder.samefile(other)


@contextlib.contextmanager
def _detector(options: dict[str, Any]) -> Iterator[Detector]:
    question = Question(
        options["score_threshold"], options["iou_threshold"], options["orientation"], options["tiles"]
    )
    if options["url"] is None:
        yield artifact_detector(
            options["artifact"],
            question,
            options["device"],
            options["batch"],
            options["decode"],
            options["decode_threads"],
            options["public_key"],
            options["ops"],
        )
        return
    try:
        client = Client(
            options["url"], options["api_key"] or None, options["timeout"], connections=options["connections"]
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        raise CommandError("lensbox detect", str(error), ExitCode.UNUSABLE) from error
    with client:
        yield service_detector(client, question)


def _detect(
    command: str,
    files: list[ListedFile],
    detector: Detector,
    format_name: str | None,
    coco_file: Path | None,
    annotate: Path | None,
) -> ExitCode:
    name = format_name or ("table" if sys.stdout.isatty() else "jsonl")
    paths = [file.path for file in files]
    coco = coco_file and CocoResults(coco_file, paths, detector.classes)
    form = coco or make_format(name, paths, detector.classes)
    results = detector.detect([file.path for file in files if file.fault is None])
    code = ExitCode.GOOD
    with progress(len(files)) as step, contextlib.closing(results):
        for file in files:
            result = file.fault or next(results)
            if isinstance(result, ServiceError) and not result.is_of_one_image:
                raise result
            if isinstance(result, ImageDetections) and annotate is not None:
                result = _drawn(file, result, detector, annotate)
            with step():
                if isinstance(result, ImageDetections):
                    _print(form(file.path, result))
                else:
                    reason = _told(file.path, result)
                    _print(form(file.path, reason))
                    click.echo(f"{command}: {reason}", err=True)
                    code = ExitCode.BAD_INPUT
    if coco:
        _print(coco.text())
    return code


def _print(lines: str) -> None:
    # Escape bytes in file names that are not text, as JSON does.
    click.echo(lines.encode("utf-8", "backslashreplace").decode(), nl=False)


def _drawn(
    file: ListedFile, result: ImageDetections, detector: Detector, folder: Path
) -> ImageDetections | InputError:
    try:
        draw(file.path, result, detector, folder / file.drawing)
    except InputError as error:
        return error
    return result


def _told(file: Path, error: LensboxError) -> str:
    """Return a message that names the file."""
    return str(error) if str(file) in str(error) else f"{file}: {error}"
