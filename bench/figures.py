"""The ratios that Lensbox is held to: a peer's time divided by ours, in one run."""

from collections.abc import Sequence
from dataclasses import dataclass

from lensbox.bench.cases import (
    BOTH,
    CPU_BOXES,
    CPU_NMS_BOXES,
    FORWARD,
    HEADLINE_BATCH,
    HEADLINE_SLOTS,
    Direction,
    Kind,
)
from lensbox.bench.limits import NOT_MEASURED, Limit
from lensbox.bench.peers import registry
from lensbox.bench.results import Measure, Row, fastest
from lensbox.bench.table import number


@dataclass(frozen=True)
class Figure:
    """One ratio.

    peers, ours: of each, the fastest counts.
    measure: what is compared, on both sides.
    limit: the least that is accepted, and what is striven for.
    """

    name: str
    group: str
    kind: Kind
    direction: Direction
    batch: int
    slots: int
    peers: tuple[str, ...]
    ours: tuple[str, ...]
    measure: Measure
    limit: Limit


_OURS = (registry.LENSBOX,)
_BATCHED = registry.TORCHVISION_BATCHED_NMS


def _loss(name: str, direction: Direction, measure: Measure, must: float, aim: float) -> Figure:
    shape = (HEADLINE_BATCH, HEADLINE_SLOTS)
    peers = (registry.COMPILED,)
    return Figure(name, "headline", "loss", direction, *shape, peers, _OURS, measure, Limit(must, aim))


def _nms(name: str, batch: int, slots: int, peer: str, must: float, aim: float) -> Figure:
    return Figure(name, "nms", "nms", FORWARD, batch, slots, (peer,), _OURS, "complete", Limit(must, aim))


FIGURES = [
    _loss("forward, graph: torch.compile / ours", FORWARD, "graph", 3.2, 4.5),
    _loss("forward, call: torch.compile / ours", FORWARD, "call", 5, 6),
    _loss("forward + backward, graph: torch.compile / ours", BOTH, "graph", 3.5, 5),
    _loss("forward + backward, call: torch.compile / ours", BOTH, "call", 6, 10),
    Figure(
        name="per-sample loop / ours, copy of targets included",
        group="transfer",
        kind="transfer",
        direction=FORWARD,
        batch=HEADLINE_BATCH,
        slots=HEADLINE_SLOTS,
        peers=(registry.PER_SAMPLE,),
        ours=(registry.LENSBOX, registry.LENSBOX_JAGGED),
        measure="complete",
        limit=Limit(must=5000, aim=10_000),
    ),
    _nms("padded_nms [128, 1024]: torchvision batched_nms / ours", 128, 1024, _BATCHED, 100, 400),
    _nms("padded_nms [256, 256]: torchvision batched_nms / ours", 256, 256, _BATCHED, 300, 1000),
    _nms("padded_nms [1, 1024]: torchvision nms / ours", 1, 1024, registry.TORCHVISION_NMS, 4, 8),
    Figure(
        name="CPU, one thread, loss forward + backward, 256 boxes: torchvision / ours",
        group="cpu",
        kind="unpadded loss",
        direction=BOTH,
        batch=1,
        slots=CPU_BOXES,
        peers=(registry.TORCHVISION,),
        ours=_OURS,
        measure="call",
        limit=Limit(must=5, aim=10),
    ),
    Figure(
        name="CPU, one thread, NMS of 1,000 boxes: torchvision / ours",
        group="cpu",
        kind="nms",
        direction=FORWARD,
        batch=1,
        slots=CPU_NMS_BOXES,
        peers=(registry.TORCHVISION_NMS,),
        ours=_OURS,
        measure="call",
        limit=Limit(must=2, aim=5),
    ),
]

HEADER = ["figure", "peer, µs", "ours, µs", "ratio", "must", "aim", ""]


def figure_lines(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each figure, beneath HEADER; one that was not measured says so."""
    return [_line(figure, rows) for figure in FIGURES]


def _line(figure: Figure, rows: Sequence[Row]) -> list[str]:
    of_case = [
        row
        for row in rows
        if (row.case.group, row.case.kind, row.case.direction, row.case.batch, row.case.slots)
        == (figure.group, figure.kind, figure.direction, figure.batch, figure.slots)
    ]
    theirs = fastest(of_case, figure.peers, figure.measure)
    ours = fastest(of_case, figure.ours, figure.measure)
    if theirs is None or ours is None or theirs.summary is None or ours.summary is None:
        return [figure.name, "", "", "", *figure.limit.cells, NOT_MEASURED]
    ratio = theirs.summary.median / ours.summary.median
    return [
        figure.name,
        number(theirs.summary.median),
        number(ours.summary.median),
        number(ratio),
        *figure.limit.cells,
        figure.limit.verdict(ratio),
    ]
