"""`lensbox bench --url URL PHOTO...`: load a running service and measure its requests per second."""

import itertools
import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lensbox.cli.detect import list_files

if TYPE_CHECKING:
    from lensbox.client import Client

_ROW = (
    "{connections:>11}{requests_per_second:>12,.1f}{p50_ms:>10.1f}{p95_ms:>10.1f}{p99_ms:>10.1f}{errors:>8}"
)


class Load(NamedTuple):
    """A load with some connections: seconds of each answered request, errors by code, duration."""

    latencies: list[float]
    errors: Counter[str]
    seconds: float


def bench_service(
    url: str,
    api_key: str | None,
    files: Sequence[Path],
    connections: Sequence[int],
    seconds: float,
    as_json: bool,
) -> None:
    """Send photographs over each number of connections, and print a row for each.

    files: image files and folders. Raise UsageError, InputError for a missing photograph, and ServiceError
    if the service cannot detect in one of them.
    """
    from lensbox.client import Client  # httpx may be missing

    photographs = []
    for file in list_files(files, recursive=False):
        if file.fault is not None:
            raise file.fault
        photographs.append(file.path.read_bytes())
    rows: list[dict[str, Any]] = []
    service: dict[str, Any] = {}
    for count in connections:
        try:
            client = Client(url, api_key, retries=0, connections=count)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        with client:
            service = client.metadata()["service"]
            for photograph in photographs:
                client.detect(photograph)
            load = _load(client, photographs, count, seconds)
        rows.append({"connections": count, **_figures(load)})
    if as_json:
        click.echo(json.dumps({"url": url, "service": service, "rows": rows}, indent=2))
        return
    name = f"{service['model']} version {service['model_version']} on {service['device']}"
    click.echo(f"{url}, {name}, photographs: {len(photographs)}\n")
    click.echo(f"{'connections':>11}{'requests/s':>12}{'ms: p50':>10}{'p95':>10}{'p99':>10}{'errors':>8}")
    for row in rows:
        click.echo(_ROW.format(**{**row, "errors": sum(row["errors"].values())}))
    for code, number in sum((Counter(row["errors"]) for row in rows), Counter[str]()).items():
        click.echo(f"{number} requests failed: {code}", err=True)


def _load(client: "Client", photographs: Sequence[bytes], connections: int, seconds: float) -> Load:
    """Let each connection send one photograph after another for some seconds."""
    from lensbox.client import ServiceError

    start = threading.Barrier(connections + 1)
    latencies: list[float] = []
    errors: Counter[str] = Counter()
    lock = threading.Lock()

    def send(first: int) -> None:
        taken, failed = [], Counter[str]()
        mine = itertools.islice(itertools.cycle(photographs), first, None)
        start.wait()
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            try:
                client.detect(next(mine))
                taken.append(time.perf_counter() - begin)
            except ServiceError as error:
                failed[error.code] += 1
                time.sleep(min(error.retry_after or 0.0, max(0.0, end - time.perf_counter())))
        with lock:
            latencies.extend(taken)
            errors.update(failed)

    with ThreadPoolExecutor(connections) as pool:
        waiting = [pool.submit(send, index % len(photographs)) for index in range(connections)]
        start.wait()
        began = time.perf_counter()
        for future in waiting:
            future.result()
        elapsed = time.perf_counter() - began
    return Load(latencies, errors, elapsed)


def _figures(load: Load) -> dict[str, Any]:
    """Return requests per second, percentiles of the latency in milliseconds, and the errors by code."""
    if len(load.latencies) < 2:
        percentiles = [1e3 * value for value in load.latencies * 99] or [float("nan")] * 99
    else:
        percentiles = [1e3 * cut for cut in statistics.quantiles(load.latencies, n=100, method="inclusive")]
    return {
        "requests_per_second": len(load.latencies) / load.seconds,
        **{f"p{rank}_ms": percentiles[rank - 1] for rank in (50, 95, 99)},
        "errors": dict(load.errors),
    }
