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
    stem = DEFAULT_OUTPUT if output is None else output.with_suffix("")
    return {name: stem.with_name(stem.name + SUFFIXES[name]) for name in formats}
