"""What `lensbox export` is asked for. Imports no torch: what is asked in vain is told at once."""

import os
from dataclasses import dataclass
from pathlib import Path

import click

from lensbox.common.command import require_runner
from lensbox.common.files import require_writable_file, require_writable_folder
from lensbox.export.output_paths import SUFFIXES, foreign_suffix, output_paths

# Proven on `--pictures`, whatever else is measured.
_PROVEN = frozenset({"aoti", "onnx", "program", "triton"})


@dataclass(frozen=True)
class ExportArguments:
    """One field for each option of the command, by its name."""

    model: str | None
    weights: Path | None
    options: tuple[str, ...]
    formats: tuple[str, ...]
    plain_ops: bool
    output: Path | None
    score_threshold: float | None
    iou_threshold: float | None
    ops: tuple[Path, ...]
    carry_ops: bool
    dtype: str
    device: str
    pictures: tuple[Path, ...]
    tolerance: float
    parity: bool
    runner: Path | None
    report: Path | None

    @property
    def paths(self) -> dict[str, Path]:
        """Where each format goes."""
        return output_paths(self.output, self.formats)

    @property
    def program(self) -> Path | None:
        """The runner to compare with in C++, of the option or the environment."""
        if not self.parity:
            return None
        return self.runner or (Path(name) if (name := os.environ.get("LENSBOX_RUNNER")) else None)

    def check(self) -> None:
        """Raises click.UsageError for options that do not go together, and OutputError or InputError for
        files that cannot be written, or run."""
        self._check_options()
        require_runner(self.program)
        paths = self.paths
        if self.report in paths.values():
            raise click.UsageError(f"--report must be another file than --output, got {self.report}")
        for name, path in paths.items():
            (require_writable_folder if name == "triton" else require_writable_file)("--output", path)
        if self.report is not None:
            require_writable_file("--report", self.report)

    def _check_options(self) -> None:
        formats = {*self.formats}
        promised = foreign_suffix(self.output, self.formats)
        for is_wrong, message in (
            (
                self.pictures and not self.parity and self.dtype == "float32" and not _PROVEN & formats,
                "--pictures must come with --parity, another --dtype than float32, or --format aoti, onnx, "
                "program or triton",
            ),
            (
                self.plain_ops and "program" not in formats,
                "--plain-ops must come with --format program: ONNX files hold standard operators anyway, the "
                "others run in Lensbox's runtimes",
            ),
            (
                self.dtype != "float32" and not formats <= {"torchscript", "aoti"},
                "--dtype must be float32 for an ONNX file or exported program, whose runtimes choose "
                f"themselves, and for a repository of Triton, which holds an ONNX file, got {self.dtype}",
            ),
            (self.carry_ops and not self.ops, "--carry-ops must come with --ops"),
            (
                self.carry_ops and "torchscript" not in formats,
                "--carry-ops must come with --format torchscript: other files carry none",
            ),
            (
                not self.parity and (self.runner is not None or self.report is not None),
                "--runner and --report must come with --parity",
            ),
            (
                self.model is None and self.options,
                "--option must come with --model: the face detector takes none",
            ),
            (
                promised,
                f"--output must not end as the files of another format, got {self.output}: give --format "
                f"{promised}, or a name that ends in {SUFFIXES[self.formats[0]]}",
            ),
        ):
            if is_wrong:
                raise click.UsageError(message)
