"""The ratios that the ops are held to: a peer's time over Lensbox's, in one run."""

from collections.abc import Sequence
from dataclasses import dataclass

from lensbox.bench.ops import peers
from lensbox.bench.ops.cases import BOTH, FORWARD, Direction, OpsCase
from lensbox.bench.report import Figure, Report, number

DETAILS = ("peer, µs", "ours, µs")


@dataclass(frozen=True)
class Ratio:
    """One ratio, of the case of a group with this kind, direction and batch.

    ours: the fastest counts. must, aim: the least ratio that is accepted, and the goal.
    """

    name: str
    group: str
    direction: Direction
    peer: str
    measure: str
    must: float
    aim: float
    kind: str = "loss"
    batch: int | None = None
    slots: int | None = None
    ours: tuple[str, ...] = (peers.LENSBOX,)

    def is_of(self, case: OpsCase) -> bool:
        """Say whether the ratio is taken in this case."""
        if (self.group, self.kind, self.direction) != (case.group, case.kind, case.direction):
            return False
        return self.batch in (None, case.batch) and self.slots in (None, case.slots)

    def figure(self, cases: Sequence[OpsCase], report: Report) -> Figure:
        """Look the times up."""
        titles = [case.title for case in cases if self.is_of(case)]
        theirs = [report.median(title, self.peer, self.measure) for title in titles]
        ours = [report.median(title, way, self.measure) for title in titles for way in self.ours]
        measured = [median for median in ours if median is not None]
        if not measured or not theirs or theirs[0] is None:
            return Figure(self.name, None, self.must, self.aim, details=("", ""))
        times = (theirs[0], min(measured))
        details = [number(time) for time in times]
        return Figure(self.name, times[0] / times[1], self.must, self.aim, details=details)


def _nms(name: str, batch: int, slots: int, peer: str, must: float, aim: float) -> Ratio:
    return Ratio(name, "nms", FORWARD, peer, "complete", must, aim, "nms", batch, slots)


_BATCHED = peers.TORCHVISION_BATCHED_NMS
RATIOS = [
    Ratio("forward, graph: torch.compile / ours", "headline", FORWARD, peers.COMPILED, "graph", 3.2, 4.5),
    Ratio("forward, call: torch.compile / ours", "headline", FORWARD, peers.COMPILED, "call", 5, 6),
    Ratio(
        "forward + backward, graph: torch.compile / ours", "headline", BOTH, peers.COMPILED, "graph", 3.5, 5
    ),
    Ratio("forward + backward, call: torch.compile / ours", "headline", BOTH, peers.COMPILED, "call", 6, 10),
    Ratio(
        "per-sample loop / ours, copy of targets included",
        *("transfer", FORWARD, peers.PER_SAMPLE, "complete", 5000, 10_000),
        kind="transfer",
        ours=(peers.LENSBOX, peers.LENSBOX_JAGGED),
    ),
    _nms("padded_nms [128, 1024]: torchvision batched_nms / ours", 128, 1024, _BATCHED, 100, 400),
    _nms("padded_nms [256, 256]: torchvision batched_nms / ours", 256, 256, _BATCHED, 300, 1000),
    _nms("padded_nms [1, 1024]: torchvision nms / ours", 1, 1024, peers.TORCHVISION_NMS, 4, 8),
    Ratio(
        "CPU, one thread, loss forward + backward, 256 boxes: torchvision / ours",
        *("cpu", BOTH, peers.TORCHVISION, "call", 5, 10),
        kind="unpadded loss",
    ),
    Ratio(
        "CPU, one thread, NMS of 1,000 boxes: torchvision / ours",
        *("cpu", FORWARD, peers.TORCHVISION_NMS, "call", 2, 5),
        kind="nms",
    ),
]
