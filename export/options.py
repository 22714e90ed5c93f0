"""The options of an export, from the command to the files. No import of torch, so errors appear at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

DEFAULT_OUTPUT = Path("artifacts") / "detector"  # and the suffix of the format
SUFFIXES = {"torchscript": ".pt", "aoti": ".pt2", "onnx": ".onnx"}


@dataclass(frozen=True)
class ExportOptions:
    """How a detector is exported.

    score_threshold, iou_threshold: default thresholds of the files; None for the detector's.
    dtype: precision of convolutions and linear layers: "float32", "tf32", "float16" or "bfloat16".
    device: "cpu", "cuda" or "auto": where the change by `dtype` is measured, and the target of aoti.
    tolerance: largest change of a box by `dtype`, in canvas pixels.
    pictures: image files, compared in addition to drawn pictures.
    carry_picture: whether the self-test uses one of `pictures`.
    trace: whether to trace `detect` for the TorchScript file; None: only if TorchScript cannot compile it.
    batches: fixed batch sizes of the network, empty for any; ONNX and AOTInductor take one size.
    runner: the program `lensbox_runner`, for a comparison in C++. ops: the detector's op libraries, for it.
    """

    score_threshold: float | None = None
    iou_threshold: float | None = None
    dtype: str = "float32"
    device: str = "cpu"
    tolerance: float = 2.0
    pictures: Sequence[Path] = ()
    carry_picture: bool = False
    trace: bool | None = None
    batches: Sequence[int] = ()
    runner: Path | None = None
    ops: Sequence[Path] = ()


def check_usage(options: ExportOptions, formats: Sequence[str], output: Path | None) -> None:
    """Raise click.UsageError for options that do not fit each other."""
    promised = foreign_suffix(output, formats)
    for is_wrong, message in (
        (
            options.dtype != "float32" and "onnx" in formats,
            "--dtype must be float32 for --format onnx, whose runtime chooses the precision, got "
            f"{options.dtype}",
        ),
        (
            options.trace and {*formats} != {"torchscript"},
            "--trace must come with --format torchscript: torch.export makes the other graphs",
        ),
        (
            len(options.batches) > 1 and {*formats} != {"torchscript"},
            "--batch must be one size except for --format torchscript, as others hold one graph, got "
            f"{','.join(map(str, options.batches))}",
        ),
        (options.carry_picture and not options.pictures, "--carry-picture must come with --pictures"),
        (
            promised,
            f"--output must not have the suffix of another format, got {output}: give --format {promised}, "
            f"or a name that ends in {SUFFIXES[formats[0]]}",
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
