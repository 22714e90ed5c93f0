"""`lensbox bench detector --artifact`: how long any detector takes, from canvases and from images."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from lensbox.artifact.self_test import TOLERANCES, max_error
from lensbox.bench.check import WrongAnswerError
from lensbox.bench.comparison import Outcome, call_series, clock_of, compare, complete_series
from lensbox.bench.environment import environment
from lensbox.bench.measurement import Effort
from lensbox.bench.ops_report import environment_markdown, environment_text
from lensbox.bench.results import summary_columns, write_records
from lensbox.bench.table import format_markdown, format_text, number, spread
from lensbox.bench.threads import cpu_threads
from lensbox.bench.timing import MICROSECONDS, Series
from lensbox.common.errors import ArtifactError
from lensbox.common.files import atomic_write
from lensbox.runtime import Artifact, load_artifact
from lensbox.runtime.freed_memory import keep_freed_memory

_EFFORT = Effort(rounds=30, sample_seconds=0.02, figure_seconds=3.0)
_QUICK = Effort(rounds=7, sample_seconds=0.01, figure_seconds=0.5)
_BATCHES = {"cpu": (1, 4, 16), "cuda": (1, 8, 32, 128)}
_QUICK_BATCHES = (1, 4)
_IMAGE_SIZE = 480, 640

CANVASES, CAPTURED, IMAGES = "canvases, plain calls", "canvases, captured", "images of 640x480"


@dataclass(frozen=True)
class Options:
    """device: "cpu" or "cuda". output: folder for the files, or None. threads: of the CPU.
    batch: images a call; None for several sizes."""

    device: str
    output: Path | None = None
    quick: bool = False
    threads: int = 1
    batch: int | None = None

    @property
    def batches(self) -> tuple[int, ...]:
        if self.batch is not None:
            return (self.batch,)
        return _QUICK_BATCHES if self.quick else _BATCHES[self.device]


@dataclass(frozen=True)
class ArtifactRecord:
    """A row of artifact.csv. Times are microseconds of a batch; empty where there is no figure."""

    way: str
    device: str
    threads: int
    batch: int
    median_us: str
    p20_us: str
    p80_us: str
    samples: int
    images_per_second: str
    note: str


Key = tuple[str, int]  # way and batch size


def run(path: Path, options: Options, say: Callable[[str], None]) -> bool:
    """Times an artifact, says a table, and writes artifact.csv and artifact.md where asked to.

    Returns whether all ways gave a figure. Raises ArtifactError if it cannot be loaded, or fails its
    self-test.
    """
    keep_freed_memory()
    with cpu_threads(options.threads), torch.inference_mode():
        artifact = load_artifact(path, options.device)
        report = artifact.self_test()
        if not report.passed:
            raise ArtifactError(f"{path} fails its self-test: {'; '.join(report.failures)}")
        effort = _QUICK if options.quick else _EFFORT
        ways = {
            (way, batch): partial(_prepare, way, batch, artifact, path, options, effort)
            for batch in options.batches
            for way in (CANVASES, CAPTURED, IMAGES)
            if way != CAPTURED or options.device == "cuda"
        }
        outcomes = compare(ways)
    machine = environment(torch.device(options.device), ())
    table = _table(outcomes)
    title = f"{artifact.metadata.name}, {path.name}, {_canvas(artifact)}, on {options.device}"
    notes = [
        f"- {way}, batch {batch}: {found.note}" for (way, batch), found in outcomes.items() if found.note
    ]
    say("\n\n".join([environment_text(machine), f"{title}\n{format_text(*table)}", *notes]))
    if options.output is not None:
        records = [_record(key, found, options) for key, found in outcomes.items()]
        columns = [column.name for column in fields(ArtifactRecord)]
        write_records(options.output / "artifact.csv", columns, records)
        parts = [environment_markdown(machine), f"## {title}", format_markdown(*table), *notes]
        atomic_write(options.output / "artifact.md", ("\n\n".join(parts) + "\n").encode())
    return all(found.summary is not None for found in outcomes.values())


def _prepare(
    way: str, batch: int, artifact: Artifact, path: Path, options: Options, effort: Effort
) -> Series:
    if way == IMAGES:
        call: Callable[[], object] = partial(artifact.detect_images, _images(artifact, batch))
    else:
        canvases = _canvases(artifact, batch)
        subject = artifact
        if way == CAPTURED:
            subject = load_artifact(path, options.device)
            subject.capture([batch])
            _require_same(subject.detect(canvases), artifact.detect(canvases))
        call = partial(subject.detect, canvases)
    if options.device == "cuda":
        return complete_series(call, effort)
    return call_series(call, effort, clock_of(options.threads))


def _canvases(artifact: Artifact, batch: int) -> Tensor:
    """The self-test's picture, as often as the batch is large, on the device."""
    canvases, _ = artifact.module.preprocess([artifact.metadata.self_test.image.to(artifact.device)])
    repeated: Tensor = canvases.expand(batch, -1, -1, -1).contiguous()
    return repeated


def _images(artifact: Artifact, batch: int) -> list[Tensor]:
    """In the memory of the host, as decoders give them."""
    canvas = artifact.metadata.canvas
    channels = canvas.channels if canvas else 1
    generator = torch.Generator().manual_seed(0)
    shape = (channels, *_IMAGE_SIZE)
    return [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for _ in range(batch)]


def _require_same(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    """Raises WrongAnswerError."""
    if not torch.equal(actual[2], expected[2]):
        raise WrongAnswerError(f"{actual[2].tolist()} are found, {expected[2].tolist()} by plain calls")
    errors = max_error(actual[0], expected[0]), max_error(actual[1], expected[1])
    tolerance = TOLERANCES["cuda"]
    if not (errors[0] <= tolerance.boxes and errors[1] <= tolerance.scores):
        raise WrongAnswerError(f"boxes differ by {errors[0]:.3g} px and scores by {errors[1]:.3g}")


def _canvas(artifact: Artifact) -> str:
    canvas = artifact.metadata.canvas
    return f"canvas {canvas.width}x{canvas.height}x{canvas.channels}"


def _images_per_second(batch: int, found: Outcome) -> str:
    return number(batch * MICROSECONDS / found.summary.median) if found.summary else ""


def _table(outcomes: dict[Key, Outcome]) -> tuple[list[str], list[list[str]]]:
    header = ["from", "batch", "µs a batch", "images/s"]
    return header, [
        [way, str(batch), spread(found.summary), _images_per_second(batch, found)]
        for (way, batch), found in outcomes.items()
    ]


def _record(key: Key, found: Outcome, options: Options) -> ArtifactRecord:
    way, batch = key
    return ArtifactRecord(
        way=way,
        device=options.device,
        threads=options.threads,
        batch=batch,
        **summary_columns(found.summary),
        images_per_second=_images_per_second(batch, found).replace(",", ""),
        note=found.note,
    )
