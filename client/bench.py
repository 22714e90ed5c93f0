"""`lensbox bench FILE`: measure the latency of an artifact of any format on this machine."""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lensbox.common.command import FILE, OPS, Command
from lensbox.common.errors import ArtifactError

if TYPE_CHECKING:
    from lensbox.runtime import Artifact

_BATCHES = "1,8,32"
_IMAGE_SIZE = 480, 640
_WARM_CALLS = 3  # TorchScript watches the first call and compiles in the second
_ROUNDS = 30
_FEWEST_ROUNDS = 5
_FIGURE_SECONDS = 2.0  # approximate time for all samples of a figure

Call = Callable[[], object]


def batch_sizes(text: str) -> tuple[int, ...]:
    """Parse batch sizes such as "1,8,32". Raises BadParameter."""
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1 or max(sizes) > 4096:
        raise click.BadParameter(f"must be whole numbers from 1 to 4096, such as {_BATCHES}, got {text!r}")
    return sizes


@click.command(cls=Command)
@click.argument("file", type=FILE)
@click.option(
    "--batch",
    default=_BATCHES,
    callback=lambda _, __, text: batch_sizes(text),
    metavar="N,N...",
    help="Canvases or images per call.",
)
@click.option("--device", metavar="NAME", help="cpu, cuda or cuda:N. Default: the device of the file.")
@click.option("--threads", type=click.IntRange(1), default=1, metavar="N", help="CPU threads.")
@OPS
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def bench(
    file: Path,
    batch: tuple[int, ...],
    device: str | None,
    threads: int,
    ops: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Measure the latency of an artifact by batch size, for canvases and for images in memory.

    On a GPU, measure `detect` captured as CUDA graphs, too. The self-test runs first.
    """
    found = measure(file, batch, device, threads, ops)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{found['artifact']} on {found['device']}, {threads} CPU threads, torch {found['torch']}\n")
    click.echo(f"{'from':<24}{'batch':>6}{'ms: median':>12}{'p20':>10}{'p80':>10}{'images/s':>12}")
    for row in found["rows"]:
        times = f"{row['median_ms']:>12.3f}{row['p20_ms']:>10.3f}{row['p80_ms']:>10.3f}"
        click.echo(f"{row['from']:<24}{row['batch']:>6}{times}{row['images_per_second']:>12,.1f}")


def measure(
    file: Path, batches: tuple[int, ...], device: str | None, threads: int, ops: Sequence[Path] = ()
) -> dict[str, Any]:
    """Return the times of an artifact as a JSON document.

    Raises ArtifactError if the file cannot be loaded or fails its self-test, DeviceError.
    """
    import torch

    from lensbox.common.machine import keep_freed_memory
    from lensbox.runtime.loading import load_artifact

    keep_freed_memory()
    torch.set_num_threads(threads)
    name = device or _device_of(file)
    with torch.inference_mode():
        load = partial(load_artifact, file, name, ops=ops)
        artifact = load()
        report = artifact.self_test()
        if not report.passed:
            raise ArtifactError(f"{file} fails its self-test: {'; '.join(report.failures)}")
        synchronize = torch.cuda.synchronize if artifact.device.type == "cuda" else _nothing
        rows = []
        for batch in batches:
            calls = dict(_calls(artifact, load, batch))
            for way, samples in _samples(calls, synchronize).items():
                p20, _, _, p80 = (
                    1e3 * value for value in statistics.quantiles(samples, n=5, method="inclusive")
                )
                median = 1e3 * statistics.median(samples)
                times = {"median_ms": median, "p20_ms": p20, "p80_ms": p80, "samples": len(samples)}
                rows.append({"from": way, "batch": batch, **times, "images_per_second": 1e3 * batch / median})
    return {
        "artifact": str(file),
        "device": str(artifact.device),
        "threads": threads,
        "torch": torch.__version__,
        "rows": rows,
    }


def _device_of(path: Path) -> str:
    """Return the kind of device that a file needs; "auto" if it runs on any device."""
    from lensbox.artifact.archive import open_file, read_file

    file = open_file(read_file(path), str(path))
    if file.kind == "onnx":
        return "cpu"
    return file.metadata.compiled.device if file.metadata.compiled else "auto"


def _calls(artifact: "Artifact", load: Callable[[], "Artifact"], batch: int) -> Iterator[tuple[str, Call]]:
    """Yield the calls to time. Captured calls use a second copy: plain calls would use the graphs, too."""
    import torch

    test = artifact.metadata.self_test
    canvases, _ = artifact.module.preprocess([test.image.to(artifact.device)])
    canvases = canvases.expand(batch, -1, -1, -1).contiguous()
    yield "canvases", partial(artifact.detect, canvases)
    if artifact.device.type == "cuda":
        captured = load()
        captured.capture([batch])
        yield "canvases, captured", partial(captured.detect, canvases)
    generator = torch.Generator().manual_seed(0)
    shape = (canvases.shape[1], *_IMAGE_SIZE)
    images = [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for _ in range(batch)]
    yield "images of 640x480", partial(artifact.detect_images, images)


def _samples(calls: dict[str, Call], synchronize: Call) -> dict[str, list[float]]:
    """Return seconds per call. The calls alternate, so that a disturbance affects all of them."""
    samples: dict[str, list[float]] = {way: [] for way in calls}
    for call in calls.values():
        for _ in range(_WARM_CALLS):
            call()
    began = time.perf_counter()
    for turn in range(_ROUNDS):
        if turn >= _FEWEST_ROUNDS and time.perf_counter() - began > _FIGURE_SECONDS * len(calls):
            break
        for way, call in calls.items():
            synchronize()
            start = time.perf_counter()
            call()
            synchronize()
            samples[way].append(time.perf_counter() - start)
    return samples


def _nothing() -> None:
    """Synchronize with the CPU: there is nothing to wait for."""
