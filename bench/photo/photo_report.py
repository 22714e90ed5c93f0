"""What a run of `lensbox bench photo` says: text for the terminal, photo.md for the docs."""

from collections.abc import Callable, Sequence

from lensbox.bench.ops_report import environment_markdown, environment_text
from lensbox.bench.photo import figures
from lensbox.bench.photo.answers import Movement
from lensbox.bench.photo.hostile.decode_time import DecodeTime, slowest_first
from lensbox.bench.photo.results import PhotoReport
from lensbox.bench.photo.runner import RunnerDifference
from lensbox.bench.photo.stream_case import STREAM
from lensbox.bench.photo.timings import Timing
from lensbox.bench.table import format_markdown, format_text, number, spread
from lensbox.bench.timing import MICROSECONDS

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Format = Callable[[Sequence[str], Sequence[Sequence[str]]], str]


def text(report: PhotoReport) -> str:
    """Figures and everything beside the cases, for the terminal."""
    parts = [*_tables(report, format_text, "{}"), *[f"Note: {note}" for note in report.notes]]
    return "\n\n".join(parts)


def case_text(timings: Sequence[Timing]) -> str:
    """The table of one case, for the terminal."""
    return "\n".join([timings[0].case, format_text(*case_table(timings)), *_notes(timings)])


def markdown(report: PhotoReport) -> str:
    """The whole run, to be pasted into documentation."""
    parts = [environment_markdown(report.environment), *_tables(report, format_markdown, "## {}\n")]
    parts.append(f"## Cases\n\n{_measured(report)}")
    for timings in by_case(report.timings):
        parts.append(f"### {timings[0].case}\n\n{format_markdown(*case_table(timings))}")
        parts += ["\n".join(_notes(timings))] if _notes(timings) else []
    parts += ["## Not run", "\n".join(f"- {note}" for note in report.notes)] if report.notes else []
    return "\n\n".join(parts) + "\n"


def heading(report: PhotoReport) -> str:
    """What comes first, for the terminal."""
    return f"{environment_text(report.environment)}\n\n{_measured(report)}"


def by_case(timings: Sequence[Timing]) -> list[list[Timing]]:
    return [
        [timing for timing in timings if timing.case == case]
        for case in dict.fromkeys(timing.case for timing in timings)
    ]


def case_table(timings: Sequence[Timing]) -> Table:
    """One line for each step of each way that was timed; x: times of the first way of that step."""
    header = ["step: way", "µs", "x"]
    streams = any(timing.step == STREAM for timing in timings)
    shares = any(timing.share is not None for timing in timings)
    header += ["photographs/s"] * streams + ["share of copy"] * shares
    firsts: dict[str, float] = {}
    lines = []
    for timing in timings:
        if timing.summary is None:
            firsts.setdefault(timing.step, 0.0)  # ratios to another way would mislead
            continue
        median = timing.summary.median
        first = firsts.setdefault(timing.step, median)
        times = number(median / first) if first else ""
        line = [f"{timing.step}: {timing.way}", spread(timing.summary), times]
        line += [f"{MICROSECONDS / median:,.0f}"] * streams
        line += ["" if timing.share is None else f"{timing.share:.1%}"] * shares
        lines.append(line)
    return header, lines


def answers_table(movements: Sequence[Movement]) -> Table:
    header = [
        *("photograph", "scale", "faces in full", "found again", "new", "moved, px of the photograph"),
        *("of the canvas", "score changed", "best score unmatched"),
    ]
    lines = [
        [
            movement.photograph,
            f"1/{movement.reduction}",
            *(str(count) for count in (movement.found, movement.matched, movement.new)),
            *(f"{pixels:.2f}" for pixels in (movement.box, movement.canvas_box)),
            f"{movement.score:.3f}",
            f"{movement.unmatched_score:.2f}" if movement.unmatched_score else "",
        ]
        for movement in movements
    ]
    return header, lines


def decode_table(times: Sequence[DecodeTime]) -> Table:
    """The slowest first."""
    lines = [
        [time.name, f"{time.bytes:,}", "" if time.seconds is None else f"{time.seconds:.2f}", time.outcome]
        for time in slowest_first(times)
    ]
    return ["file", "bytes", "CPU time, s", "what came of it"], lines


def runner_table(differences: Sequence[RunnerDifference]) -> Table:
    lines = [
        [
            difference.photograph,
            str(difference.found),
            str(difference.found_by_runner),
            *("" if value is None else f"{value:.3g}" for value in (difference.boxes, difference.scores)),
        ]
        for difference in differences
    ]
    return ["photograph", "faces, Python", "faces, C++", "boxes differ by, px", "scores differ by"], lines


def _tables(report: PhotoReport, table: Format, title: str) -> list[str]:
    """Figures, and the findings that are no times of cases."""
    found: list[tuple[str, Table]] = [("Figures", (figures.HEADER, figures.figure_lines(report)))]
    if report.movements:
        found.append(("Reduced decoding against full decoding", answers_table(report.movements)))
    if report.decode_times:
        found.append(
            ("Files made to take long, decoded as the service does", decode_table(report.decode_times))
        )
    if report.runner_differences:
        found.append(("The C++ runner against Python", runner_table(report.runner_differences)))
    return [f"{title.format(name)}\n{table(*rows)}" for name, rows in found]


def _measured(report: PhotoReport) -> str:
    if report.device == "cuda":
        return "Wall-clock time of calls that the GPU has completed; x: times of the first way of a step."
    clock = "CPU time, 1 thread" if report.threads == 1 else f"Wall-clock time, {report.threads} threads"
    return f"{clock}; streams by the wall clock; x: times of the first way of a step."


def _notes(timings: Sequence[Timing]) -> list[str]:
    """Why figures are missing. Steps of a way with the same reason share a line."""
    notes = dict.fromkeys((timing.way, timing.note) for timing in timings if timing.note)
    return [f"- {way}: {note}" for way, note in notes]
