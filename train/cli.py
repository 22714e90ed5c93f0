"""`lensbox train` and `lensbox evaluate`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lensbox.train.config import (
    ConfigError,
    TrainConfig,
    config_from_mapping,
    config_from_yaml,
    parse_assignment,
)
from lensbox.train.contact_sheet import save_contact_sheet
from lensbox.train.evaluation import Detect, EvaluationSet, evaluate, load_evaluation_set
from lensbox.train.image_pool import ImagePool
from lensbox.train.image_store import ImageStore, load_images
from lensbox.train.report import write_report
from lensbox.train.trainer import RunOptions, TrainingError, describe_problems, train
from lensbox.train.views import draw, make_views, view_counts
from lensbox.train.wider_face import DataError, LabelledImage, read_wider_face

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
    parser.add_argument("--config", type=Path, help="YAML (or JSON) file with configuration keys")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides the file", dest="sets"
    )
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="fit the schedule to this time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --output")
    parser.add_argument("--profile", action="store_true", help="time a step and its parts and stop")
    parser.add_argument("--tensorboard", action="store_true", help="log to TensorBoard too")
    parser.add_argument("--strict", action="store_true", help="stop at the first problem in the data")
    parser.add_argument("--contact-sheet", type=Path, metavar="PNG", help="draw views with boxes and stop")
    parser.add_argument("--print-config", action="store_true", help="print the configuration and stop")
    arguments = parser.parse_args(argv)
    try:
        config = _configuration(arguments.config, arguments.sets, arguments.time_limit)
        if arguments.print_config:
            print(json.dumps(json.loads(config.to_json()), indent=2))
            return 0
        return _train(arguments, config, list(argv), started)
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
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--weights", type=Path, help="safetensors file; default: the shipped weights")
    what.add_argument("--artifact", type=Path, help="exported TorchScript artifact")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="draw curves, misses, false alarms")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--strict", action="store_true", help="stop at the first problem in the data")
    arguments = parser.parse_args(argv)
    try:
        data = _validation(arguments.data, arguments.strict)
        figures, matched = evaluate(_detector(arguments), data, arguments.device)
    except FileNotFoundError as error:
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
        summary = {"average_precision": figures.average_precision, "recommended_threshold": figures.threshold}
        arguments.json.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return 0


def _configuration(path: Path | None, assignments: Sequence[str], time_limit: float | None) -> TrainConfig:
    values: dict[str, Any] = config_from_yaml(path) if path is not None else {}
    values.update(parse_assignment(text) for text in assignments)
    if time_limit is not None:
        if time_limit <= 0:
            raise ConfigError(f"--time-limit must be above 0, got {time_limit}")
        values.setdefault("steps", NO_STEP_LIMIT)  # time alone ends the run
    return config_from_mapping(values)


def _train(arguments: argparse.Namespace, config: TrainConfig, argv: list[str], started: float) -> int:
    device = _set_up(arguments.device)
    main = not dist.is_initialized() or dist.get_rank() == 0
    images, problems = read_wider_face(arguments.data, arguments.strict)
    store, pool = _store(images, config, device)
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
        tensorboard=arguments.tensorboard,
        profile=arguments.profile,
        recipe={
            "command": " ".join(["lensbox train", *argv]),
            "photographs": str(len(store)),
            "python": platform.python_version(),
        },
    )
    train(store, validation, config, options, report=_print, refill=pool.refill if pool else None)
    return 0


def _store(
    images: list[LabelledImage], config: TrainConfig, device: torch.device
) -> tuple[ImageStore, ImagePool | None]:
    """Decodes the photographs onto the device, or, if they are too many, as many as it may hold at a time."""
    capacity = max(config.max_targets, config.max_ignored)
    weights, trims, workers = config.source_weights, config.source_trims, config.workers
    if len(images) <= config.resident_images:
        store = load_images(images, device, weights=weights, trims=trims, capacity=capacity, workers=workers)
        return store, None
    pool = ImagePool(
        images,
        device,
        resident=config.resident_images,
        weights=weights,
        trims=trims,
        capacity=capacity,
        workers=workers,
        seed=config.seed,
    )
    return pool.store, pool


def _print(line: str) -> None:
    print(line, flush=True)


def _set_up(name: str) -> torch.device:
    """Joins the process group that torchrun announces, chooses the device and the arithmetic."""
    device = torch.device(name)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError(f"--device must be one that this machine has, got {name}")
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
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


def _detector(arguments: argparse.Namespace) -> Detect:
    if arguments.artifact is not None:
        from lensbox.export.artifact import load_artifact  # the op library is needed only here

        artifact = load_artifact(arguments.artifact, arguments.device)
        return artifact.detect
    from lensbox.model import load_detector

    return load_detector(arguments.weights).to(arguments.device).detect
