"""How long a way took."""

from dataclasses import dataclass

from lensbox.bench.results import summary_columns
from lensbox.bench.timing import Summary


@dataclass(frozen=True)
class Timing:
    """summary: microseconds a call, or a photograph of a stream; None where there is no figure. share: of a
    copy's bandwidth. note: why there is no figure."""

    case: str
    step: str
    way: str
    summary: Summary | None = None
    share: float | None = None
    note: str = ""


@dataclass(frozen=True)
class TimingRecord:
    """A row of photo.csv. Times are microseconds; empty where there is no figure."""

    case: str
    step: str
    way: str
    device: str
    threads: int
    median_us: str
    p20_us: str
    p80_us: str
    samples: int
    copy_bandwidth_share: str
    note: str


def timing_record(timing: Timing, device: str, threads: int) -> TimingRecord:
    return TimingRecord(
        case=timing.case,
        step=timing.step,
        way=timing.way,
        device=device,
        threads=threads,
        **summary_columns(timing.summary),
        copy_bandwidth_share="" if timing.share is None else f"{timing.share:.4g}",
        note=timing.note,
    )
