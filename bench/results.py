"""What was measured: one row a figure, and the CSV file that holds them."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict

from lensbox.bench.cases import Case, short_name
from lensbox.bench.timing import Summary
from lensbox.common.files import atomic_write

# graph: inputs in the cache, the latency of a call. graph cold: inputs from device memory, for bandwidth.
Measure = Literal["call", "complete", "graph", "graph cold", ""]


@dataclass(frozen=True)
class Row:
    """One figure, or why there is none.

    measure: what was timed (see `timing`); "" where the peer was not timed at all.
    summary: microseconds a call; None where there is no figure.
    useful_bytes: what the task itself must read and write, whatever the peer does; 0 where not counted.
    share: useful_bytes over the time, as a share of the measured copy bandwidth.
    note: why there is no figure.
    """

    case: Case
    peer: str
    measure: Measure
    summary: Summary | None = None
    useful_bytes: int = 0
    share: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Record:
    """A row of the CSV file. Times are microseconds; empty where there is no figure."""

    group: str
    kind: str
    direction: str
    device: str
    threads: int
    batch: int
    slots: int
    fill: str
    pred_dtype: str
    target_dtype: str
    peer: str
    measure: str
    median_us: str
    p20_us: str
    p80_us: str
    samples: int
    useful_bytes: int
    copy_bandwidth_share: str
    note: str


COLUMNS = tuple(field.name for field in fields(Record))


class SummaryColumns(TypedDict):
    """The columns of a summary in every CSV file."""

    median_us: str
    p20_us: str
    p80_us: str
    samples: int


def summary_columns(summary: Summary | None) -> SummaryColumns:
    """Times with four digits; empty where there is no figure."""
    if summary is None:
        return {"median_us": "", "p20_us": "", "p80_us": "", "samples": 0}
    median, p20, p80 = (f"{time:.4g}" for time in (summary.median, summary.p20, summary.p80))
    return {"median_us": median, "p20_us": p20, "p80_us": p80, "samples": summary.samples}


def to_record(row: Row) -> Record:
    case = row.case
    boxes = case.kind in ("nms", "pairwise")
    return Record(
        group=case.group,
        kind=case.kind,
        direction=case.direction,
        device=case.device,
        threads=case.threads,
        batch=case.batch,
        slots=case.slots,
        fill="" if boxes else "normal" if case.fill is None else f"{case.fill:g}",
        pred_dtype="float32" if boxes else short_name(case.pred_dtype),
        target_dtype="" if boxes else short_name(case.target_dtype),
        peer=row.peer,
        measure=row.measure,
        **summary_columns(row.summary),
        useful_bytes=row.useful_bytes,
        copy_bandwidth_share="" if row.share is None else f"{row.share:.4g}",
        note=row.note,
    )


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    write_records(path, COLUMNS, map(to_record, rows))


def write_records(path: Path, columns: Sequence[str], records: Iterable[Any]) -> None:
    """Writes dataclasses whose fields are `columns`, one a row."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(map(asdict, records))
    atomic_write(path, text.getvalue().encode())


def fastest(rows: Iterable[Row], peers: Iterable[str], measure: Measure) -> Row | None:
    """Of all figures of `peers` by `measure`, the one with the smallest median."""
    peers = tuple(peers)
    found = [row for row in rows if row.peer in peers and row.measure == measure and row.summary is not None]
    return min(found, key=lambda row: row.summary.median if row.summary else 0.0, default=None)
