"""`lensbox bench FILE`: measure the latency of artifacts of any format on this machine."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lensbox.cli.command import FILE, OPS, Command
from lensbox.common.errors import ArtifactError

if TYPE_CHECKING:
    from lensbox.cli.timing import Call
    from lensbox.runtime import Artifact

_BATCHES = "1,8,32"
_IMAGE_SIZE = 480, 640


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
@click.argument("files", type=FILE, nargs=-1, metavar="FILE...")
@click.option("--artifact", "more_files", type=FILE, multiple=True, help="The same as FILE.")
@click.option(
    "--batch",
    default=_BATCHES,
    callback=lambda _, __, text: batch_sizes(text),
    metavar="N,N...",
    help="Canvases or images per call.",
)
@click.option("--device", metavar="NAME", help="cpu, cuda or cuda:N. Default: the device of each file.")
@click.option("--threads", type=click.IntRange(1), default=1, metavar="N", help="CPU threads.")
@OPS
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def bench(
    files: tuple[Path, ...],
    more_files: tuple[Path, ...],
    batch: tuple[int, ...],
    device: str | None,
    threads: int,
    ops: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Measure the latency of artifacts by batch size, for canvases and for images in memory.

    Several files take turns, so that their figures can be compared. On a GPU, measure `detect` captured as
    CUDA graphs, too. The self-tests run first.
    """
    if not (files := files + more_files):
        raise click.UsageError("bench must be given a FILE, such as artifacts/detector.pt")
    found = measure(files, batch, device, threads, ops)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{threads} CPU threads, torch {found['torch']}\n")
    width = max(len(row["artifact"]) for row in found["rows"])
    columns = f"{'device':<8}{'from':<24}{'batch':>6}{'ms: median':>12}{'p20':>10}{'p80':>10}{'images/s':>12}"
    click.echo(f"{'file':<{width}}  {columns}")
    for row in found["rows"]:
        times = f"{row['median_ms']:>12.3f}{row['p20_ms']:>10.3f}{row['p80_ms']:>10.3f}"
        way = f"{row['artifact']:<{width}}  {row['device']:<8}{row['from']:<24}{row['batch']:>6}"
        click.echo(f"{way}{times}{row['images_per_second']:>12,.1f}")


def measure(
    files: Sequence[Path],
    batches: Sequence[int],
    device: str | None,
    threads: int,
    ops: Sequence[Path] = (),
) -> dict[str, Any]:
    """Return the times of artifacts as a JSON document.

    Raises ArtifactError if a file cannot be loaded or fails its self-test, DeviceError.
    """
    import torch

    from lensbox.cli.timing import time_in_turns
    from lensbox.common.machine import keep_freed_memory
    from lensbox.runtime.loading import load_artifact

    keep_freed_memory()
    torch.set_num_threads(threads)
    rows = []
    with torch.inference_mode():
        loaders = {file: partial(load_artifact, file, device or _device_of(file), ops=ops) for file in files}
        artifacts = {file: load() for file, load in loaders.items()}
        for file, artifact in artifacts.items():
            report = artifact.self_test()
            if not report.passed:
                raise ArtifactError(f"{file} fails its self-test: {'; '.join(report.failures)}")
        for batch in batches:
            calls = {
                (file, way): call
                for file, artifact in artifacts.items()
                for way, call in _calls(artifact, loaders[file], batch)
            }
            for (file, way), times in time_in_turns(calls, threads).items():
                median, p20, p80 = (1e3 * value for value in times[:3])
                row: dict[str, Any] = {"artifact": str(file), "device": str(artifacts[file].device)}
                row |= {"from": way, "batch": batch, "median_ms": median, "p20_ms": p20, "p80_ms": p80}
                row |= {"samples": times.samples, "images_per_second": 1e3 * batch / median}
                rows.append(row)
    return {"threads": threads, "torch": torch.__version__, "rows": rows}


def _device_of(path: Path) -> str:
    """Return the kind of device that a file needs; "auto" if it runs on any device."""
    from lensbox.runtime.file.archive import open_file, read_file

    file = open_file(read_file(path), str(path))
    if file.kind == "onnx":
        return "cpu"
    return file.metadata.compiled.device if file.metadata.compiled else "auto"


def _calls(artifact: "Artifact", load: Callable[[], "Artifact"], batch: int) -> Iterator[tuple[str, "Call"]]:
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
