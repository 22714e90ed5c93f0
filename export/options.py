"""The options of `lensbox export` and their checks. No import of torch, so errors appear at once."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from lensbox.common.command import require_runner
from lensbox.common.files import require_writable_file

DEFAULT_OUTPUT = Path("artifacts") / "detector"  # and the suffix of the format
SUFFIXES = {"torchscript": ".pt", "aoti": ".pt2", "onnx": ".onnx"}


@dataclass(frozen=True)
class ExportArguments:
    """The options of the command, one field each."""

    model: str | None
    size: str | None
    weights: Path | None
    options: tuple[str, ...]
    formats: tuple[str, ...]
    trace: bool | None
    batch: tuple[int, ...]
    output: Path | None
    score_threshold: float | None
    iou_threshold: float | None
    ops: tuple[Path, ...]
    dtype: str
    device: str
    pictures: tuple[Path, ...]
    carry_picture: bool
    tolerance: float
    parity: bool
    runner: Path | None
    report: Path | None

    @property
    def paths(self) -> dict[str, Path]:
        """Return the output path of each format."""
        return output_paths(self.output, self.formats)

    @property
    def program(self) -> Path | None:
        """Return the runner of --runner or LENSBOX_RUNNER; None without a comparison in C++."""
        if not self.parity:
            return None
        return self.runner or (Path(name) if (name := os.environ.get("LENSBOX_RUNNER")) else None)

    def check(self) -> None:
        """Check all options.

        Raises click.UsageError for wrong combinations, OutputError for paths that cannot be written, and
        InputError for a runner that cannot be run.
        """
        self._check_options()
        require_runner(self.program)
        paths = self.paths
        if self.report in paths.values():
            raise click.UsageError(f"--report must be another file than --output, got {self.report}")
        for path in paths.values():
            require_writable_file("--output", path)
        if self.report is not None:
            require_writable_file("--report", self.report)

    def _check_options(self) -> None:
        formats = {*self.formats}
        promised = foreign_suffix(self.output, self.formats)
        for is_wrong, message in (
            (
                self.dtype != "float32" and "onnx" in formats,
                "--dtype must be float32 for --format onnx, whose runtime chooses the precision, got "
                f"{self.dtype}",
            ),
            (
                self.trace and not formats <= {"torchscript"},
                "--trace must come with --format torchscript: torch.export makes the other graphs",
            ),
            (
                len(self.batch) > 1 and not formats <= {"torchscript"},
                "--batch must be one size except for --format torchscript, as others hold one graph, got "
                f"{','.join(map(str, self.batch))}",
            ),
            (self.carry_picture and not self.pictures, "--carry-picture must come with --pictures"),
            (
                not self.parity and (self.runner is not None or self.report is not None),
                "--runner and --report must come with --parity",
            ),
            (
                self.size is not None and (self.model is not None or self.weights is not None),
                "--size must come without --model and --weights, since it names shipped weights",
            ),
            (
                self.model is None and self.options,
                "--option must come with --model: the face detector takes no options",
            ),
            (
                promised,
                f"--output must not have the suffix of another format, got {self.output}: give --format "
                f"{promised}, or a name that ends in {SUFFIXES[self.formats[0]]}",
            ),
        ):
            if is_wrong:
                raise click.UsageError(message)


def output_paths(output: Path | None, formats: Sequence[str]) -> dict[str, Path]:
    """Return the path of each format: `output` itself for one format, else `output` with each suffix."""
    if output is not None and len(formats) == 1:
        return {formats[0]: output}
    stem = DEFAULT_OUTPUT if output is None else _without_suffix(output)
    return {name: stem.with_name(stem.name + SUFFIXES[name]) for name in formats}


def foreign_suffix(output: Path | None, formats: Sequence[str]) -> str | None:
    """Return the format that the suffix of `output` names, if only another format is written."""
    if output is None or len(formats) != 1 or SUFFIXES[formats[0]].endswith(output.suffix):
        return None
    return next((name for name, suffix in SUFFIXES.items() if output.suffix == suffix), None)


def _without_suffix(output: Path) -> Path:
    """Return the path without its suffix; a number, as in `v1.2`, is no suffix."""
    return output if output.suffix[1:].isdecimal() else output.with_suffix("")
