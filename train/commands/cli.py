"""`lensbox train`, `lensbox evaluate` and `lensbox stress`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lensbox.model import load_detector, read_metadata, recommended_threshold
from lensbox.model.weights_file import DEFAULT_THRESHOLD
from lensbox.samples.photos import face_free_photos
from lensbox.train.config.reading import config_from_yaml, parse_assignment
from lensbox.train.config.settings import TrainConfig, config_from_mapping
from lensbox.train.data.folds import LEFT_OUT, Fold, parse_fold, without_fold
from lensbox.train.data.image_pool import ImagePool
from lensbox.train.data.image_store import ImageStore, load_images
from lensbox.train.data.wider_face import DataError, LabelledImage, read_wider_face
from lensbox.train.errors import ConfigError
from lensbox.train.evaluation.coco_precision import CocoMissingError
from lensbox.train.evaluation.contact_sheet import save_contact_sheet
from lensbox.train.evaluation.evaluate import Detect, EvaluationSet, evaluate, load_evaluation_set
from lensbox.train.evaluation.pictures import write_report
from lensbox.train.loss.distillation import load_teachers
from lensbox.train.run.checkpoint import load_average
from lensbox.train.run.initial_weights import load_initial_weights
from lensbox.train.run.progress_bar import open_progress_bar
from lensbox.train.run.run import RunOptions, TrainingError, describe_problems, train
from lensbox.train.stress.degradations import FACTORS
from lensbox.train.stress.stress_sheet import stress_sheet
from lensbox.train.stress.stress_test import (
    false_alarm_line,
    sample_portraits,
    search_face_free,
    stress_test,
    table,
)
from lensbox.train.views.draws import draw, view_counts
from lensbox.train.views.make_views import make_views

NO_STEP_LIMIT = 10**9


def train_main(argv: Sequence[str]) -> int:
    """Runs `lensbox train`. Returns 0, 2 for wrong usage, 4 for bad data, 5 for a run that broke down."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="lensbox train", description="Train a face detector on photographs in the WIDER FACE layout."
    )
    parser.add_argument("--data", nargs="+", required=True, metavar="PATH", help="folders or tar shards")
    parser.add_argument("--val", nargs="+", default=[], metavar="PATH", help="the same, to score on")
    parser.add_argument("--output", type=Path, default=Path("runs/train"), help="folder of the run")
    parser.add_argument(
        "--config",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="YAML (or JSON) files with configuration keys; later ones override",
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides the files", dest="sets"
    )
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="fit the schedule to this time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--resume", action="store_true", help="go on from the checkpoint in --output")
    start.add_argument("--weights", type=Path, help="start from this safetensors file, to fine-tune it")
    parser.add_argument(
        "--teacher",
        type=Path,
        nargs="+",
        default=[],
        metavar="PATH",
        help="weights of larger detectors, whose predictions are learned too",
        dest="teachers",
    )
    parser.add_argument(
        "--leave-out",
        metavar="K/N",
        help="train without fold K of N of the photographs, to teach about them",
    )
    parser.add_argument("--profile", action="store_true", help="time a step and its parts and stop")
    parser.add_argument("--tensorboard", action="store_true", help="log to TensorBoard too")
    parser.add_argument("--strict", action="store_true", help="stop at the first problem in the data")
    parser.add_argument("--contact-sheet", type=Path, metavar="PNG", help="draw views with boxes and stop")
    parser.add_argument("--print-config", action="store_true", help="print the configuration and stop")
    arguments = parser.parse_args(argv)
    try:
        config = _configuration(arguments)
        if arguments.print_config:
            print(json.dumps(json.loads(config.to_json()), indent=2))
            return 0
        code = _train(arguments, config, list(argv), started)
        if dist.is_initialized():
            dist.barrier()  # none takes its connections down while another still uses them
        return code
    except (ConfigError, FileNotFoundError) as error:
        print(f"lensbox train: {error}", file=sys.stderr)
        return 2
    except (DataError, ValueError) as error:
        print(f"lensbox train: {error}", file=sys.stderr)
        return 4
    except TrainingError as error:
        print(f"lensbox train: {error}", file=sys.stderr)
        return 5
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def evaluate_main(argv: Sequence[str]) -> int:
    """Runs `lensbox evaluate`. Returns 0, 2 for wrong usage, 4 for bad data."""
    parser = argparse.ArgumentParser(
        prog="lensbox evaluate", description="Average precision at IoU 0.5 by box height."
    )
    parser.add_argument("--data", nargs="+", required=True, metavar="PATH", help="folders or tar shards")
    _add_detector_options(parser)
    parser.add_argument("--coco", action="store_true", help="COCO's average precision too (pycocotools)")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="draw curves, misses, false alarms")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--strict", action="store_true", help="stop at the first problem in the data")
    arguments = parser.parse_args(argv)
    try:
        device = _device(arguments.device)
        detect, _ = _detector(arguments, device)
        data = _validation(arguments.data, arguments.strict)
        figures, matched = evaluate(detect, data, device, arguments.coco)
    except (ConfigError, FileNotFoundError, CocoMissingError) as error:
        print(f"lensbox evaluate: {error}", file=sys.stderr)
        return 2
    except (DataError, ValueError, RuntimeError) as error:
        print(f"lensbox evaluate: {error}", file=sys.stderr)
        return 4
    print("\n".join(figures.lines()))
    if arguments.report is not None:
        write_report(data, matched, arguments.report)
        print(f"wrote {arguments.report}")
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures.to_json(), indent=2) + "\n", encoding="utf-8")
    return 0


def stress_main(argv: Sequence[str]) -> int:
    """Runs `lensbox stress`. Returns 0, 2 for wrong usage, 4 for a detector that does not work."""
    parser = argparse.ArgumentParser(
        prog="lensbox stress",
        description="Degrade two portraits in the public domain until the detector misses them; draw where.",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="PNG", help="the picture to write")
    parser.add_argument(
        "--threshold",
        type=float,
        help="least score of a face (what weights or artifact recommend, otherwise 0.5)",
    )
    _add_detector_options(parser)
    arguments = parser.parse_args(argv)
    if arguments.threshold is not None and not 0 <= arguments.threshold <= 1:
        parser.error(f"--threshold must be between 0 and 1, got {arguments.threshold}")
    if arguments.output.suffix != ".png":
        parser.error(f"--output must be a file that ends in .png, got {arguments.output}")
    try:
        device = _device(arguments.device)
        detect, recommended = _detector(arguments, device)
        threshold = recommended if arguments.threshold is None else arguments.threshold
        results = stress_test(detect, sample_portraits(), FACTORS, device)
        face_free = search_face_free(detect, face_free_photos(), device)
    except (ConfigError, FileNotFoundError) as error:
        print(f"lensbox stress: {error}", file=sys.stderr)
        return 2
    except (ValueError, RuntimeError) as error:
        print(f"lensbox stress: {error}", file=sys.stderr)
        return 4
    print(table(results, threshold))
    print(f"\n{false_alarm_line(face_free, threshold)}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    stress_sheet(results, face_free, threshold).save(arguments.output, optimize=True)
    print(f"\nwrote {arguments.output}")
    return 0


def _add_detector_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--weights", type=Path, help="safetensors file; default: the shipped weights")
    what.add_argument("--checkpoint", type=Path, help="checkpoint.pt of a run; its weight average counts")
    what.add_argument("--artifact", type=Path, help="exported TorchScript artifact")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def _configuration(arguments: argparse.Namespace) -> TrainConfig:
    """What the files and `--set` say, for a resumed run laid over what it had."""
    values: dict[str, Any] = {}
    earlier = arguments.output / "config.json"
    if arguments.resume and earlier.is_file():
        values.update(config_from_yaml(earlier))
    for path in arguments.config:
        values.update(config_from_yaml(path))
    values.update(parse_assignment(text) for text in arguments.sets)
    if arguments.time_limit is not None:
        if arguments.time_limit <= 0:
            raise ConfigError(f"--time-limit must be above 0, got {arguments.time_limit}")
        values.setdefault("steps", NO_STEP_LIMIT)  # time alone ends the run
    elif values.get("steps") == NO_STEP_LIMIT:
        raise ConfigError(
            "a run that a time limit was to end needs --time-limit, or --set steps=..., to go on"
        )
    return config_from_mapping(values)


def _train(arguments: argparse.Namespace, config: TrainConfig, argv: list[str], started: float) -> int:
    device = _set_up(arguments.device)
    initial = load_initial_weights(arguments.weights, config) if arguments.weights is not None else None
    teachers = load_teachers(arguments.teachers)
    main = not dist.is_initialized() or dist.get_rank() == 0
    images, problems = read_wider_face(arguments.data, arguments.strict)
    left_out = _left_out(arguments)
    images = images if left_out is None else without_fold(images, left_out)
    store, pool = _store(images, config, device, teachers.folds)
    problems += store.problems
    if main:
        describe_problems(problems, print)
        print(f"{len(store)} photographs decoded after {time.monotonic() - started:.1f} s", flush=True)
    if arguments.strict and problems:
        raise DataError(str(problems[0]))
    if arguments.contact_sheet is not None:
        _draw_sheet(store, config, device, arguments.contact_sheet)
        return 0
    validation = _validation(arguments.val, arguments.strict) if arguments.val and main else None
    options = RunOptions(
        output=arguments.output,
        device=device,
        time_limit=arguments.time_limit,
        started=started,
        resume=arguments.resume,
        initial=initial,
        left_out=left_out,
        teachers=teachers,
        tensorboard=arguments.tensorboard,
        profile=arguments.profile,
        recipe={
            "command": shlex.join(["lensbox", "train", *argv]),
            "photographs": str(len(store)),
            "python": platform.python_version(),
        },
    )
    bar = open_progress_bar() if main and not arguments.profile else None
    report = _print if bar is None else bar.write
    try:
        train(store, validation, config, options, report, refill=pool.refill if pool else None, bar=bar)
    finally:
        if bar is not None:
            bar.close()
    return 0


def _left_out(arguments: argparse.Namespace) -> Fold | None:
    """The fold to train without. Weights to start from must not have seen it either."""
    if arguments.leave_out is None:
        return None
    fold = parse_fold(arguments.leave_out)
    if arguments.weights is not None:
        known = read_metadata(arguments.weights).get(LEFT_OUT)
        if known != str(fold):
            raise ConfigError(
                f"--weights must have been trained without fold {fold}, as --leave-out says, "
                f"got weights that left out {known or 'nothing'}"
            )
    return fold


def _store(
    images: list[LabelledImage], config: TrainConfig, device: torch.device, folds: int
) -> tuple[ImageStore, ImagePool | None]:
    """Decodes the photographs onto the device, or, if they are too many, as many as it may hold at a time."""
    capacity = max(config.boxes.max_targets, config.boxes.max_ignored)
    weights, trims, workers = config.data.source_weights, config.data.source_trims, config.data.workers
    if len(images) <= config.data.resident_images:
        store = load_images(
            images, device, weights=weights, trims=trims, capacity=capacity, workers=workers, folds=folds
        )
        return store, None
    if folds > 1:
        raise ConfigError(
            f"resident_images: must be at least the number of photographs, {len(images)}, if teachers left a "
            f"fold out, got {config.data.resident_images}"
        )
    pool = ImagePool(
        images,
        device,
        resident=config.data.resident_images,
        weights=weights,
        trims=trims,
        capacity=capacity,
        workers=workers,
        seed=config.seed + 2 * (dist.get_rank() if dist.is_initialized() else 0),  # it uses two seeds
    )
    return pool.store, pool


def _print(line: str) -> None:
    print(line, flush=True)


def _set_up(name: str) -> torch.device:
    """Joins the process group that torchrun announces, chooses the device and the arithmetic."""
    device = _device(name)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        # Gradients go between devices, and what the hosts agree on between hosts.
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    return device


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device must be a device such as cpu or cuda:0, got {name}") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device must be one that this machine has, got {name}")
    return device


def _validation(paths: Sequence[str], strict: bool) -> EvaluationSet:
    images, problems = read_wider_face(paths, strict)
    data = load_evaluation_set(images)
    problems += data.problems
    describe_problems(problems, _print)
    if strict and problems:
        raise DataError(str(problems[0]))
    return data


def _draw_sheet(store: ImageStore, config: TrainConfig, device: torch.device, path: Path) -> None:
    torch.manual_seed(config.seed)
    counts = view_counts(config)
    views = make_views(store.tensors, draw(counts, torch.ones((), device=device), device), counts, config)
    save_contact_sheet(views.images, views.targets, views.ignored, path)
    print(f"wrote {path}: {counts.mosaic} mosaics, {counts.whole} whole photographs, {counts.crop} crops")


def _detector(arguments: argparse.Namespace, device: torch.device) -> tuple[Detect, float]:
    """What the arguments name, and the score from which on its detections should count as faces."""
    if arguments.artifact is not None:
        from lensbox.runtime.artifact import load_artifact  # the op library is needed only here

        artifact = load_artifact(arguments.artifact, device)
        return artifact.detect, artifact.metadata.score_threshold
    if arguments.checkpoint is not None:
        return load_average(arguments.checkpoint).to(device).detect, DEFAULT_THRESHOLD
    return load_detector(arguments.weights).to(device).detect, recommended_threshold(arguments.weights)
