"""Asks a running service as fast as it answers: python -m lensbox.bench.service_load URL IMAGE

Each client is a thread with one kept connection, and asks again once it is answered. Prints the median and
the 99th percentile of the times to an answer, and the answers per second, of /v1/detect with IMAGE and of
/v1/loss with 16 boxes.
"""

import argparse
import http.client
import json
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

_BOXES = [[8.0 * i, 4.0 * i, 8.0 * i + 40.5, 4.0 * i + 50.25] for i in range(16)]


class Answers(NamedTuple):
    """seconds: of every answer; statuses: how often each came."""

    seconds: list[float]
    statuses: Counter[int]


def main(arguments: list[str] | None = None) -> None:
    """Prints one line for each endpoint."""
    parser = argparse.ArgumentParser(description="Times the answers of a running service.")
    parser.add_argument("url")
    parser.add_argument("image", type=Path)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=200, help="of all clients together, to each endpoint")
    options = parser.parse_args(arguments)
    loss = json.dumps({"predictions": _BOXES, "targets": _BOXES}).encode()
    for path, body in (("/v1/detect", options.image.read_bytes()), ("/v1/loss", loss)):
        started = time.perf_counter()
        answers = ask(options.url, path, body, options.clients, options.requests)
        rate = len(answers.seconds) / (time.perf_counter() - started)
        median, slow = (
            1000 * value for value in (statistics.median(answers.seconds), _slowest(answers.seconds))
        )
        print(
            f"{path}: {options.clients} clients, median {median:.1f} ms, p99 {slow:.1f} ms, "
            f"{rate:.0f} answers a second, statuses {dict(answers.statuses)}"
        )


def ask(url: str, path: str, body: bytes, clients: int, requests: int) -> Answers:
    """Sends `requests` POST requests, shared by `clients` threads."""
    with ThreadPoolExecutor(clients) as threads:
        parts = threads.map(lambda _: _client(url, path, body, requests // clients), range(clients))
        seconds, statuses = zip(*parts, strict=True)
    return Answers([second for part in seconds for second in part], sum(statuses, Counter()))


def _client(url: str, path: str, body: bytes, requests: int) -> Answers:
    answers = Answers([], Counter())
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    for _ in range(requests):
        started = time.perf_counter()
        connection.request("POST", path, body)
        response = connection.getresponse()
        response.read()
        answers.seconds.append(time.perf_counter() - started)
        answers.statuses[response.status] += 1
    connection.close()
    return answers


def _slowest(seconds: list[float]) -> float:
    """The 99th percentile."""
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]


if __name__ == "__main__":
    main()
