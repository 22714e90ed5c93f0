"""What a run of `lensbox bench photo` found, and the CSV files that hold it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lensbox.bench.ops_report import Environment
from lensbox.bench.photo.answers import Movement
from lensbox.bench.photo.hostile.decode_time import DecodeTime
from lensbox.bench.photo.runner import RunnerDifference
from lensbox.bench.photo.timings import Timing, TimingRecord, timing_record
from lensbox.bench.results import write_records


@dataclass
class PhotoReport:
    """device: "cpu" or "cuda". threads: of the CPU. notes: what was not run, and why."""

    environment: Environment
    device: str
    threads: int
    timings: list[Timing] = field(default_factory=list)
    movements: list[Movement] = field(default_factory=list)
    decode_times: list[DecodeTime] = field(default_factory=list)
    runner_differences: list[RunnerDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def timing(self, case: str, step: str, way: str) -> Timing | None:
        """None where it was not timed."""
        for timing in self.timings:
            if (timing.case, timing.step, timing.way) == (case, step, way) and timing.summary is not None:
                return timing
        return None

    def median(self, case: str, step: str, way: str) -> float | None:
        """Microseconds; None where it was not timed."""
        timing = self.timing(case, step, way)
        return timing.summary.median if timing is not None and timing.summary is not None else None


def write_csv_files(folder: Path, report: PhotoReport) -> None:
    """Writes photo.csv, and those of answers, hostile files and runner that would have rows."""
    records = [timing_record(timing, report.device, report.threads) for timing in report.timings]
    _write(folder / "photo.csv", TimingRecord, records)
    for name, kind, rows in (
        ("photo_answers.csv", Movement, report.movements),
        ("photo_hostile.csv", DecodeTime, report.decode_times),
        ("photo_runner.csv", RunnerDifference, report.runner_differences),
    ):
        if rows:
            _write(folder / name, kind, rows)


def _write(path: Path, kind: Any, rows: Sequence[Any]) -> None:
    write_records(path, [column.name for column in fields(kind)], rows)
