"""Tables, as text for the terminal and as Markdown for the documentation."""

from collections.abc import Sequence

from lensbox.bench.peers.registry import LENSBOX
from lensbox.bench.results import Measure, Row
from lensbox.bench.timing import Summary

MEASURES: tuple[Measure, ...] = ("call", "complete", "graph", "graph cold")


def format_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell: the first to the left, the rest to the right."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def format_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    separator = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(header), separator, *rows])


def number(value: float) -> str:
    """Three significant digits, thousands grouped: 0.712, 4.40, 17.3, 55,800."""
    rounded = float(f"{value:.3g}")
    decimals = 0 if rounded >= 100 else 1 if rounded >= 10 else 2 if rounded >= 1 else 3
    return f"{rounded:,.{decimals}f}"


def spread(summary: Summary | None) -> str:
    """`median (p20-p80)`, or nothing where there is no figure."""
    if summary is None:
        return ""
    return f"{number(summary.median)} ({number(summary.p20)}-{number(summary.p80)})"


def case_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]], list[str]]:
    """Header, lines and footnotes for the rows of one case: one line a peer that was timed.

    Cells are `median (p20-p80)` in microseconds; "x" columns are times of Lensbox's figure, by the measure of
    the same name.
    """
    measures = [
        measure for measure in MEASURES if any(row.measure == measure and row.summary for row in rows)
    ]
    by_key = {(row.peer, row.measure): row for row in rows if row.summary is not None}
    peers = list(dict.fromkeys(peer for peer, _ in by_key))
    has_share = any(row.share is not None for row in rows)
    header = ["peer"]
    for measure in measures:
        header += [f"{measure}, µs", "x"]
    header += ["share of copy"] if has_share else []
    lines = []
    for peer in peers:
        line = [peer]
        for measure in measures:
            row, ours = by_key.get((peer, measure)), by_key.get((LENSBOX, measure))
            line += [spread(row.summary if row else None), _times(row, ours)]
        if has_share:
            shares = [row.share for row in rows if row.peer == peer and row.share is not None]
            line.append(f"{shares[-1]:.1%}" if shares else "")
        lines.append(line)
    return header, lines, footnotes(rows)


def footnotes(rows: Sequence[Row]) -> list[str]:
    """Why figures are missing. Peers with the same reason share a line."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.note:
            who = f"{row.peer} ({row.measure})" if row.measure else row.peer
            reasons.setdefault(row.note, []).append(who)
    return [f"{', '.join(who)}: {reason}" for reason, who in reasons.items()]


def useful_megabytes(rows: Sequence[Row]) -> str:
    """What the task must move, as Lensbox's op on padded targets has it."""
    count = max((row.useful_bytes for row in rows if row.peer == LENSBOX), default=0)
    return f"{number(count / 1e6)} MB to be moved" if count else ""


def _times(row: Row | None, ours: Row | None) -> str:
    if row is None or row.summary is None or ours is None or ours.summary is None:
        return ""
    return number(row.summary.median / ours.summary.median)
