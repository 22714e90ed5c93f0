"""`lensbox bench FILE`: measure artifacts on this machine, or load a running service (--url)."""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from lensbox.cli.command import FILE, OPS, Command, batch_sizes, check_source
from lensbox.common.errors import ArtifactError
from lensbox.common.machine import keep_freed_memory

if TYPE_CHECKING:
    from lensbox.runtime import Artifact

_WARM_CALLS = 3  # TorchScript watches the first call and compiles in the second
_BLOCK_SECONDS = 0.01
_ROUNDS = 30
_FEWEST_ROUNDS = 5

Call = Callable[[], object]
Key = TypeVar("Key")

_OF_ARTIFACT = ("more_files", "batches", "device", "threads", "ops")
_IMAGE_SIZE = 480, 640
_ROW = (
    "{artifact:<{width}}  {device:<8}{from:<24}{batch:>6}"
    "{median_ms:>12.3f}{p20_ms:>10.3f}{p80_ms:>10.3f}{images_per_second:>12,.1f}"
)


@click.command(cls=Command)
@click.argument("files", type=FILE, nargs=-1, metavar="FILE...")
@click.option("--artifact", "more_files", type=FILE, multiple=True, help="The same as FILE.")
@click.option(
    "--batch",
    "batches",
    default="1,8,32",
    type=batch_sizes(4096),
    metavar="N,N...",
    help="Canvases or images per call.",
)
@click.option("--device", metavar="NAME", help="cpu, cuda or cuda:N. Default: the device of each file.")
@click.option("--threads", type=click.IntRange(1), default=1, metavar="N", help="CPU threads.")
@OPS
@click.option("--url", metavar="URL", help="Load a running service; FILE... are photographs, or folders.")
@click.option("--api-key", envvar="LENSBOX_API_KEY", show_envvar=True, help="Key of the service.")
@click.option(
    "--connections",
    default="1,8,64",
    type=batch_sizes(1000),
    metavar="N,N...",
    help="Concurrent requests to the service.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    metavar="S",
    help="For each number of connections.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.pass_context
def bench(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    more_files: tuple[Path, ...],
    batches: tuple[int, ...],
    device: str | None,
    threads: int,
    ops: tuple[Path, ...],
    url: str | None,
    api_key: str | None,
    connections: tuple[int, ...],
    seconds: float,
    as_json: bool,
) -> None:
    """Measure the latency of artifacts by batch size, for canvases and for images in memory.

    Several files take turns, so that their figures can be compared. On a GPU, measure `detect` captured as
    CUDA graphs, too. The self-tests run first. With --url, FILE... are photographs: measure the requests per
    second of a running service.
    """
    check_source(context, url, _OF_ARTIFACT, ("connections", "seconds"))
    if url is not None:
        if not files:
            raise click.UsageError("bench --url must be given photographs: bench --url URL PHOTO...")
        from lensbox.cli.bench_service import bench_service

        bench_service(url, api_key or None, files, connections, seconds, as_json)
        return
    if not (files := files + more_files):
        raise click.UsageError("bench must be given a FILE, such as artifacts/detector.pt")
    # Imported here: torch takes seconds to import.
    import torch

    from lensbox.runtime.loading import load_artifact

    keep_freed_memory()
    rows: list[dict[str, Any]] = []
    torch.set_num_threads(threads)
    with torch.inference_mode():
        loaders = {file: partial(load_artifact, file, device or "auto", ops=ops) for file in files}
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
                device_name = str(artifacts[file].device)
                row = {"artifact": str(file), "device": device_name, "from": way, "batch": batch}
                row |= {f"{name}_ms": 1e3 * getattr(times, name) for name in ("median", "p20", "p80")}
                rows.append({**row, "samples": times.samples, "images_per_second": batch / times.median})
    if as_json:
        click.echo(json.dumps({"threads": threads, "torch": torch.__version__, "rows": rows}, indent=2))
        return
    click.echo(f"{threads} CPU threads, torch {torch.__version__}\n")
    width = max(len(row["artifact"]) for row in rows)
    columns = f"{'device':<8}{'from':<24}{'batch':>6}{'ms: median':>12}{'p20':>10}{'p80':>10}{'images/s':>12}"
    click.echo(f"{'file':<{width}}  {columns}")
    for row in rows:
        click.echo(_ROW.format(**row, width=width))


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


class Times(NamedTuple):
    """Median, 20th and 80th percentile in seconds, and the number of samples."""

    median: float
    p20: float
    p80: float
    samples: int


def summarize(samples: Sequence[float]) -> Times:
    """Summarize at least two samples. Percentiles are interpolated linearly."""
    p20, _, _, p80 = statistics.quantiles(samples, n=5, method="inclusive")
    return Times(statistics.median(samples), p20, p80, len(samples))


def time_in_turns(
    calls: Mapping[Key, Call], threads: int = 1, seconds: float = 2.0, cpu_time: bool = False
) -> dict[Key, Times]:
    """Return the time of each call, up to its result: a GPU has finished.

    A sample is the mean of a block of calls, of about 10 ms if calls are short. The calls take turns, so that
    a disturbance of the machine affects all of them. threads: of the CPU. seconds: approximate time for all
    samples of a call; each call gets 5 to 30 samples. cpu_time: count the CPU time of this process, which
    leaves out the turns of other processes on a busy machine.
    """
    from torch.utils.benchmark import Timer, timer  # late: torch takes seconds to import

    clock = time.process_time if cpu_time else timer
    timers = {
        key: Timer("call()", timer=clock, globals={"call": call}, num_threads=threads)
        for key, call in calls.items()
    }
    blocks: dict[Key, int] = {}
    for key, one in timers.items():
        one.timeit(_WARM_CALLS)
        blocks[key] = one.blocked_autorange(min_run_time=_BLOCK_SECONDS).number_per_run
    samples: dict[Key, list[float]] = {key: [] for key in calls}
    began = time.perf_counter()
    for turn in range(_ROUNDS):
        if turn >= _FEWEST_ROUNDS and time.perf_counter() - began > seconds * len(calls):
            break
        for key, one in timers.items():
            samples[key].append(one.timeit(blocks[key]).mean)
    return {key: summarize(taken) for key, taken in samples.items()}
