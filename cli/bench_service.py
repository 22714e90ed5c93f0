"""`lensbox bench --url URL PHOTO...`: load a running service and measure its requests per second."""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from lensbox.cli.detect import list_files
from lensbox.cli.source import open_client
from lensbox.common.errors import InputError, reading
from lensbox.common.files import read_regular

if TYPE_CHECKING:
    from lensbox.client import Client

_RANKS = (50, 95, 99)  # of the percentiles
_ROW = (
    "{connections:>11}{requests_per_second:>12,.1f}{p50_ms:>10.1f}{p95_ms:>10.1f}{p99_ms:>10.1f}{errors:>8}"
)


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
    photographs = []
    for file in list_files(files, recursive=False):
        if file.fault is not None:
            raise file.fault
        with reading(file.path, InputError):
            photographs.append(read_regular(file.path))
    rows: list[dict[str, Any]] = []
    service: dict[str, Any] = {}
    for count in connections:
        with open_client(url, api_key, retries=0, connections=count) as client:
            service = client.metadata()["service"]
            for photograph in photographs:
                client.detect(photograph)
            rows.append({"connections": count, **_figures(client, photographs, count, seconds)})
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


def _figures(
    client: "Client", photographs: Sequence[bytes], connections: int, seconds: float
) -> dict[str, Any]:
    """Let each connection send one photograph after another for some seconds.

    Return requests per second, percentiles of the latency in milliseconds, and the errors by code.
    """
    from lensbox.client import ServiceError

    start = threading.Barrier(connections + 1)

    def send(first: int) -> tuple[list[float], Counter[str]]:
        taken, failed = [], Counter[str]()
        mine = itertools.islice(itertools.cycle(photographs), first, None)
        start.wait()
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            try:
                client.detect(next(mine))
                taken.append(1e3 * (time.perf_counter() - begin))
            except ServiceError as error:
                failed[error.code] += 1
                time.sleep(min(error.retry_after or 0.0, max(0.0, end - time.perf_counter())))
        return taken, failed

    with ThreadPoolExecutor(connections) as pool:
        waiting = [pool.submit(send, index % len(photographs)) for index in range(connections)]
        start.wait()
        began = time.perf_counter()
        found = [future.result() for future in waiting]
        elapsed = time.perf_counter() - began
    latencies = [latency for taken, _ in found for latency in taken]
    cuts = np.percentile(latencies or [np.nan], _RANKS).tolist()
    return {
        "requests_per_second": len(latencies) / elapsed,
        **{f"p{rank}_ms": cut for rank, cut in zip(_RANKS, cuts, strict=True)},
        "errors": dict(sum((failed for _, failed in found), Counter[str]())),
    }
