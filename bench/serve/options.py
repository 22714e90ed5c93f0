"""What a run of `lensbox bench serve` is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lensbox.bench.serve.rows import ROWS


class Peer(NamedTuple):
    """How LitServe is run. threads: of one inference on a CPU; None: as many as the service's."""

    workers: int
    batch: int
    threads: int | None = None


PEERS = tuple(Peer(workers, batch) for workers in (1, 8) for batch in (1, 8, 32))


@dataclass(frozen=True)
class Options:
    """What is to be run, and for how long.

    artifact: the file that is served. image: the photograph that is sent, or None for a made-up JPEG of
    512 x 512. rows: of `ROWS`. seconds: of each load; overload_seconds: of the one that is too much.
    frontends: of our service; None is its default. load_processes: that send; None is one, or one for each
    core that is kept for them. requests: after which the memory is looked at for the second time. threads:
    of one inference on a CPU.
    """

    artifact: Path
    device: str
    image: Path | None = None
    rows: tuple[str, ...] = ROWS
    seconds: float = 8.0
    overload_seconds: float = 60.0
    frontends: int | None = None
    load_processes: int | None = None
    requests: int = 100_000
    threads: int = 1
    peers: tuple[Peer, ...] = PEERS
