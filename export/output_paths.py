"""Where `lensbox export` writes each format. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path

DEFAULT_OUTPUT = Path("artifacts") / "detector"  # and the suffix of the format
SUFFIXES = {
    "torchscript": ".pt",
    "aoti": ".pt2",
    "onnx": ".onnx",
    "program": ".program.pt2",
    "onnx-network": ".network.onnx",
    "triton": ".triton",
}


def output_paths(output: Path | None, formats: Sequence[str]) -> dict[str, Path]:
    """Where each format goes: one alone to the very file that was named, several beside each other."""
    if output is not None and len(formats) == 1:
        return {formats[0]: output}
    stem = DEFAULT_OUTPUT if output is None else _without_suffix(output)
    return {name: stem.with_name(stem.name + SUFFIXES[name]) for name in formats}


def foreign_suffix(output: Path | None, formats: Sequence[str]) -> str | None:
    """The format that the end of a file's name promises, where one alone is written, and another."""
    if output is None or len(formats) != 1 or SUFFIXES[formats[0]].endswith(output.suffix):
        return None
    return next((name for name, suffix in SUFFIXES.items() if output.suffix == suffix), None)


def _without_suffix(output: Path) -> Path:
    """Without that of a format, which may have two dots, or any other; the end of `v1.2` is none."""
    for suffix in sorted(SUFFIXES.values(), key=len, reverse=True):
        if output.name.endswith(suffix) and output.name != suffix:
            return output.with_name(output.name.removesuffix(suffix))
    return output if output.suffix[1:].isdecimal() else output.with_suffix("")
