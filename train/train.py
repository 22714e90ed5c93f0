"""Run `lensbox train`: train a detector on labelled photographs."""

from __future__ import annotations

import io
import logging
import math
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw

from lensbox.common.files import atomic_write, require_writable_file, require_writable_folder
from lensbox.model import read_metadata
from lensbox.runtime.device import choose_device
from lensbox.train.cli import TrainArguments
from lensbox.train.data.image_store import ImageStore, load_images, unknown_sources
from lensbox.train.data.labels import (
    DataError,
    ImagesAndProblems,
    LabelledImage,
    Problem,
    read_labels,
    report_problems,
    shared_photographs,
)
from lensbox.train.evaluation.command import load_labelled
from lensbox.train.loss.teachers import LEFT_OUT, load_teachers, parse_fold, without_fold
from lensbox.train.run import process_group
from lensbox.train.run.delivery import LAST_FILE
from lensbox.train.run.origin import Origin, first_detector
from lensbox.train.run.run import CHECKPOINT_FILE, RunOptions, TrainingRun
from lensbox.train.settings import CONFIG_FILE, ConfigError, TrainConfig, parse_assignment, read_config
from lensbox.train.views.draws import draw, view_counts
from lensbox.train.views.make_views import make_views

NO_STEP_LIMIT = 10**9
TARGET_COLOR, IGNORED_COLOR = (60, 255, 90), (255, 90, 60)  # of boxes on a contact sheet
COLUMNS = 8  # of a contact sheet

logger = logging.getLogger(__name__)


def run_train(arguments: TrainArguments) -> None:
    """Run `lensbox train`. Raise one of `lensbox.common.errors`, with its exit code, or OSError."""
    _train(arguments)
    # Do not leave after an error: another process may wait for this one, and torchrun ends all of them.
    process_group.leave()


def _train(arguments: TrainArguments) -> None:
    started = time.monotonic()
    config = _configuration(arguments)
    if arguments.print_config:
        print(config.to_json(indent=2))
        return
    device = _join(choose_device(arguments.device))
    _check_output(arguments)
    origin = _origin(arguments, config)
    images, problems = _labelled(arguments, config, origin)
    validation: ImagesAndProblems = [], []
    if arguments.val:
        how = arguments.strict, arguments.labels, "val", arguments.orientation
        validation = read_labels(arguments.val, *how)
        _warn_of_shared(images, validation[0])
    store = load_images(
        images,
        device,
        weights=config.source_weights,
        trims=config.source_trims,
        capacity=max(config.max_targets, config.max_ignored),
        workers=config.workers,
        folds=origin.teachers.folds,
    )
    report_problems(problems + store.problems, arguments.strict)
    logger.info("%d photographs decoded after %.1f s", len(store), time.monotonic() - started)
    if arguments.contact_sheet is not None:
        _draw_sheet(store, config, device, arguments.contact_sheet)
        return
    first = process_group.is_first()
    scored = load_labelled(validation, arguments.strict) if arguments.val and first else None
    options = RunOptions(
        output=arguments.output,
        device=device,
        time_limit=arguments.time_limit,
        started=started,
        resume=arguments.resume,
        origin=origin,
        recipe={
            "command": arguments.command,
            "photographs": str(len(store)),
            "python": platform.python_version(),
        },
    )
    with TrainingRun(store, config, options) as run:
        outcome = run.train(scored)
    if first:
        if outcome.figures is not None:
            print("\n".join(outcome.figures.lines()))
        weights = arguments.output / LAST_FILE
        print(f"wrote {weights} after {outcome.steps} steps and {outcome.seconds:.0f} s", flush=True)


def _configuration(arguments: TrainArguments) -> TrainConfig:
    """Return the configuration that the options name, fitted to the time limit."""
    values = _given_settings(arguments)
    if arguments.time_limit is not None:
        if not 0 < arguments.time_limit < math.inf:
            raise ConfigError(f"--time-limit must be above 0 and finite, got {arguments.time_limit}")
        values.setdefault("steps", NO_STEP_LIMIT)  # time alone ends the run
    elif values.get("steps") == NO_STEP_LIMIT:
        raise ConfigError(
            "--resume: a run that began with a time limit needs --time-limit, or --set steps=N, got neither"
        )
    return TrainConfig().with_values(values)


def _given_settings(arguments: TrainArguments) -> dict[str, Any]:
    """Return the settings of files and `--set`; a resumed run lays them over its earlier settings."""
    values: dict[str, Any] = {}
    earlier = arguments.output / CONFIG_FILE
    if arguments.resume and earlier.is_file():
        values.update(read_config(earlier))
    for path in arguments.config:
        values.update(read_config(path))
    values.update(parse_assignment(text) for text in arguments.sets)
    return values


def _join(device: torch.device) -> torch.device:
    """Join the process group that torchrun announces; choose the device and the arithmetic."""
    device = process_group.join(device)
    if not process_group.is_first():
        logging.getLogger("lensbox").setLevel(logging.ERROR)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
        # cuDNN chooses kernels by timing them; float32 products are rounded to TF32.
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    return device


def _check_output(arguments: TrainArguments) -> None:
    """Raise an error, before photographs are decoded, for files that cannot be written or resumed."""
    if arguments.contact_sheet is not None:
        require_writable_file("--contact-sheet", arguments.contact_sheet)
        return
    checkpoint = arguments.output / CHECKPOINT_FILE
    if arguments.resume and not checkpoint.is_file():
        raise ConfigError(f"--resume: checkpoint must be a file that exists, got {checkpoint}")
    require_writable_folder("--output", arguments.output)


def _origin(arguments: TrainArguments, config: TrainConfig) -> Origin:
    """Return the origin of the run. Refuse initial weights that have seen the fold left out."""
    first_detector(arguments.weights, config)  # refuse wrong weights before decoding photographs
    teachers = load_teachers(arguments.teachers)
    left_out = parse_fold(arguments.leave_out) if arguments.leave_out is not None else None
    if left_out is not None and arguments.weights is not None:
        known = read_metadata(arguments.weights).get(LEFT_OUT)
        if known != str(left_out):
            raise ConfigError(
                f"--weights must have been trained without fold {left_out}, as --leave-out says, "
                f"got weights that left out {known or 'nothing'}"
            )
    return Origin(arguments.weights, left_out, teachers)


def _labelled(
    arguments: TrainArguments, config: TrainConfig, origin: Origin
) -> tuple[list[LabelledImage], list[Problem]]:
    """Return the photographs to train on, not yet decoded, and the problems of skipped ones."""
    how = arguments.strict, arguments.labels, "train", arguments.orientation
    images, problems = read_labels(arguments.data, *how)
    for key, named in (("source_weights", config.source_weights), ("source_trims", config.source_trims)):
        for name in unknown_sources(images, named):
            logger.warning("%s names %r, but no photograph has this source", key, name)
    if origin.left_out is not None:
        images = without_fold(images, origin.left_out)
        if not images:
            raise DataError(f"--leave-out {origin.left_out} must leave photographs to train on, got none")
    return images, problems


def _warn_of_shared(images: Sequence[LabelledImage], validation: Sequence[LabelledImage]) -> None:
    if shared := shared_photographs(validation, images):
        logger.warning(
            "%d of %d photographs of --val are in --data too, such as %s: the figures will be too good",
            len(shared),
            len(validation),
            shared[0],
        )


def _draw_sheet(store: ImageStore, config: TrainConfig, device: torch.device, path: Path) -> None:
    """Write a PNG of a batch of views in a grid: targets green, ignored boxes red."""
    torch.manual_seed(config.seed)
    counts = view_counts(config)
    views = make_views(store.tensors, draw(counts, torch.ones((), device=device), device), counts, config)
    _, _, height, width = views.images.shape
    sheet = Image.new("RGB", (COLUMNS * width, -(-counts.views // COLUMNS) * height))
    pixels = views.images[:, 0].round().clamp(0, 255).byte().cpu().numpy()
    for index in range(counts.views):
        tile = Image.fromarray(pixels[index]).convert("RGB")
        pen = ImageDraw.Draw(tile)
        for boxes, color in ((views.ignored, IGNORED_COLOR), (views.targets, TARGET_COLOR)):
            for x1, y1, x2, y2 in boxes[index].cpu().tolist():
                if y2 > 0:
                    pen.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=color)
        sheet.paste(tile, (index % COLUMNS * width, index // COLUMNS * height))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    atomic_write(path, buffer.getvalue())
    print(f"wrote {path}: {counts.mosaic} mosaics, {counts.whole} whole photographs, {counts.crop} crops")
