"""What was found out of the detector's time, and the CSV files that hold it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from lensbox.bench.detector.cost import Cost
from lensbox.bench.detector.operators import Share
from lensbox.bench.ops_report import Environment
from lensbox.bench.results import summary_columns, write_records
from lensbox.bench.timing import Summary


@dataclass(frozen=True)
class Timing:
    """Of one way: microseconds a call, or the reason why there are none."""

    way: str
    computes: str
    summary: Summary | None = None
    note: str = ""


@dataclass(frozen=True)
class Breakdown:
    """Of both runtimes, by kind of operator: what one call takes.

    reorders: what oneDNN spends on layouts in TorchScript's convolutions; None where it is not known.
    """

    torchscript: Mapping[str, Share]
    onnxruntime: Mapping[str, Share]
    reorders: Share | None


@dataclass
class DetectorReport:
    """costs: by the name of a network. notes: what was not run, and why."""

    environment: Environment
    costs: Mapping[str, Cost]
    threads: int
    timings: list[Timing] = field(default_factory=list)
    breakdown: Breakdown | None = None
    notes: list[str] = field(default_factory=list)
    batch: int = 1

    def median(self, way: str) -> float | None:
        """Microseconds a call; None where it was not measured."""
        found = [timing.summary for timing in self.timings if timing.way == way and timing.summary]
        return found[0].median if found else None


@dataclass(frozen=True)
class TimingRecord:
    """A row of detector.csv. Times are microseconds; empty where there is no figure."""

    way: str
    computes: str
    device: str
    threads: int
    batch: int
    median_us: str
    p20_us: str
    p80_us: str
    samples: int
    note: str


@dataclass(frozen=True)
class OperatorRecord:
    """A row of detector_operators.csv: one kind of operator in one runtime, in one call."""

    runtime: str
    kind: str
    operators: int
    microseconds: str


def write_csv_files(folder: Path, report: DetectorReport) -> None:
    """Writes detector.csv, and detector_operators.csv where there is a breakdown."""
    timings = [_timing_record(timing, report) for timing in report.timings]
    write_records(folder / "detector.csv", _columns(TimingRecord), timings)
    if report.breakdown is not None:
        by_runtime = {
            "TorchScript": report.breakdown.torchscript,
            "onnxruntime": report.breakdown.onnxruntime,
        }
        operators = [
            OperatorRecord(runtime, kind, share.operators, f"{share.microseconds:.4g}")
            for runtime, shares in by_runtime.items()
            for kind, share in shares.items()
        ]
        write_records(folder / "detector_operators.csv", _columns(OperatorRecord), operators)


def _columns(record: type[TimingRecord] | type[OperatorRecord]) -> list[str]:
    return [column.name for column in fields(record)]


def _timing_record(timing: Timing, report: DetectorReport) -> TimingRecord:
    return TimingRecord(
        way=timing.way,
        computes=timing.computes,
        device="cpu",
        threads=report.threads,
        batch=report.batch,
        **summary_columns(timing.summary),
        note=timing.note,
    )
