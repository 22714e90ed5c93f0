"""Run `lensbox train`: train a detector on labelled photographs."""

import contextlib
import json
import logging
import time
from typing import Any

import torch

from lensbox.common.files import require_writable_folder
from lensbox.evaluation.data.labels import DataError, LabelledImage
from lensbox.runtime.device import choose_device
from lensbox.train.photographs import load_images, read_training_labels, source_names
from lensbox.train.run.origin import Origin, fold_count, fold_text, load_origin, without_fold
from lensbox.train.run.reports import FIGURES_FILE, LAST_FILE
from lensbox.train.run.training import CHECKPOINT_FILE, TrainingRun, load_checkpoint
from lensbox.train.settings import CONFIG_FILE, ConfigError, TrainConfig, TrainInputs, read_config

logger = logging.getLogger(__name__)


def run_train(inputs: TrainInputs, settings: dict[str, Any], command: str) -> None:
    """Run `lensbox train`. Raise one of `lensbox.common.errors`, with its exit code, or OSError.

    settings: those of the command line. command: the command line, for the record of the run.
    """
    started = time.monotonic()
    config = _configuration(inputs, settings)
    if inputs.print_config:
        print(config.to_json(indent=2))
    elif inputs.resume and (message := _finished(inputs)):
        logger.info(message)
    else:
        _train(inputs, config, command, started)


def _train(inputs: TrainInputs, config: TrainConfig, command: str, started: float) -> None:
    device = _prepared(choose_device(inputs.device))
    require_writable_folder("--output", inputs.output)
    origin = load_origin(inputs, config)
    labelled, validation, accounts = read_training_labels(inputs)
    images = _chosen(labelled, inputs, config, origin)
    store = load_images(images, device, config, fold_count(origin.teachers), inputs.strict)
    logger.info("%d photographs decoded after %.1f s", len(store.images), time.monotonic() - started)
    run = TrainingRun(store, config, inputs, origin, command, started)
    if (figures := run.train(validation, accounts)) is not None:
        print("\n".join(figures.lines()))
    weights = inputs.output / LAST_FILE
    print(f"wrote {weights} after {run.step.step} steps and {time.monotonic() - started:.0f} s", flush=True)


def _configuration(inputs: TrainInputs, settings: dict[str, Any]) -> TrainConfig:
    """Return the settings: of a resumed run, overridden by files, then options."""
    values: dict[str, Any] = {}
    earlier = inputs.output / CONFIG_FILE
    for path in (*([earlier] if inputs.resume and earlier.is_file() else []), *inputs.config):
        values |= read_config(path)
    return TrainConfig().replace(**(values | settings))


def _finished(inputs: TrainInputs) -> str | None:
    """Return a sentence about a run that has delivered its weights, and with --val its figures; else None."""
    checkpoint, figures = inputs.output / CHECKPOINT_FILE, inputs.output / FIGURES_FILE
    if not checkpoint.is_file():
        raise ConfigError(f"--resume: checkpoint must be a file that exists, got {checkpoint}")
    written = {}
    with contextlib.suppress(ValueError, FileNotFoundError):
        written = json.loads(figures.read_bytes())
    if ("average_precision" if inputs.val else "steps") not in written:
        return None
    load_checkpoint(checkpoint)  # a torn one is an error, as for a run that goes on
    return (
        f"the run in {inputs.output} is finished after {written['steps']} steps; "
        f"to train on, begin another run with --weights {inputs.output / LAST_FILE}"
    )


def _prepared(device: torch.device) -> torch.device:
    """Choose the arithmetic of a GPU, and return it with its index."""
    if device.type != "cuda":
        return device
    device = torch.device("cuda", device.index or 0)
    torch.cuda.set_device(device)
    # cuDNN chooses kernels by timing them; float32 products are rounded to TF32.
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    return device


def _chosen(
    images: list[LabelledImage], inputs: TrainInputs, config: TrainConfig, origin: Origin
) -> list[LabelledImage]:
    """Return the photographs to train on, not yet decoded. Warn of classes and of sources without any."""
    known = {name for image in images for name in source_names(image)}
    for key, sources in (("source_weights", config.source_weights), ("source_trims", config.source_trims)):
        for name in [name for name in sources if name not in known]:
            logger.warning("%s names %r, but no photograph has this source", key, name)
    classes = sorted({name for image in images for name in image.classes if name})
    if len(classes) > 1:
        message = "the labels have %d classes (%s); lensbox train trains on all boxes as one class"
        logger.warning(message, len(classes), ", ".join(map(repr, classes[:9])))
    if origin.left_out is not None:
        images = without_fold(images, origin.left_out)
        if not images:
            raise DataError(
                f"--leave-out {fold_text(origin.left_out)} must leave photographs to train on, got none"
            )
    return images
