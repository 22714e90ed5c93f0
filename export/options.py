"""The formats and the options of an export. No import of torch, so errors appear at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import click
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from lensbox.common.fields import Fraction, described, plain_errors
from lensbox.common.machine import has_torchscript

DEFAULT_OUTPUT = Path("artifacts") / "detector"  # and the suffix of the format


class Format(NamedTuple):
    """A file format. The module `lensbox.export.formats.NAME` has its `build`.

    suffix: of its files. packages: Python packages that the export needs beside torch. has_precisions: the
    file computes in the precision of `dtype`, not of its runtime. has_traces: `detect` may be traced, and for
    several batch sizes.
    """

    suffix: str
    packages: tuple[str, ...] = ()
    has_precisions: bool = True
    has_traces: bool = False


FORMATS = {
    "torchscript": Format(".pt", has_traces=True),
    "program": Format(".pt2"),
    "aoti": Format(".pt2"),
    "onnx": Format(".onnx", ("onnx", "onnxruntime", "onnxscript"), has_precisions=False),
}


def default_format() -> str:
    """Return the format for any machine: TorchScript, or a program on a Python without TorchScript."""
    return "torchscript" if has_torchscript() else "program"


@plain_errors
@dataclass(frozen=True, config=ConfigDict(allow_inf_nan=False, extra="forbid"))
class ExportOptions:
    """How a detector is exported: options of `lensbox export`. Raise ValueError that names a wrong field.

    formats: of the files, whose bounds the other options keep. batches: fixed batch sizes of the network,
    empty for any; only TorchScript takes more than one. runner: the program `lensbox_runner`, for a
    comparison in C++. ops: the detector's op libraries, for it.
    """

    score_threshold: Fraction | None = described(
        None,
        "Default minimum score of a detection. Default: the threshold of the detector; for the face "
        "detector, the recommendation of the weights, or 0.5.",
    )
    iou_threshold: Fraction | None = described(
        None, "Default maximum overlap (IoU) of two detections. Default: the threshold of the detector."
    )
    dtype: Literal["float32", "tf32", "float16", "bfloat16"] = described(
        "float32",
        "Precision of convolutions and linear layers. The export measures the changes against float32.",
    )
    device: Literal["auto", "cpu", "cuda"] = described(
        "cpu", "Device for measuring --dtype and target of aoti. The other files run on any device."
    )
    tolerance: Annotated[float, Field(ge=0)] = described(
        2.0, "Maximum change of a box by --dtype, in pixels of the canvas; beyond it no artifact is written."
    )
    pictures: tuple[Path, ...] = described(
        (), "Photographs for comparing the files, in addition to drawn pictures."
    )
    self_test_from_pictures: bool = described(
        False,
        "Use the photograph of --pictures with the most detected classes for the self-test, not a drawn "
        "picture.",
    )
    trace: bool | None = described(
        None,
        "Always or never trace detect for the TorchScript file. Default: trace if TorchScript cannot "
        "compile detect.",
    )
    batches: tuple[int, ...] = ()
    formats: tuple[str, ...] = ("torchscript",)
    runner: Path | None = None
    ops: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for name in self.formats:
            kind = FORMATS[name]
            if self.dtype != "float32" and not kind.has_precisions:
                raise ValueError(
                    f"--dtype must be float32 for --format {name}, whose runtime chooses the precision, got "
                    f"{self.dtype}"
                )
            if self.trace and not kind.has_traces:
                raise ValueError(f"--trace is not for --format {name}: torch.export makes its graph")
            if len(self.batches) > 1 and not kind.has_traces:
                sizes = ",".join(map(str, self.batches))
                raise ValueError(f"--batch must be one size for --format {name}, got {sizes}")
        if self.self_test_from_pictures and not self.pictures:
            raise ValueError("--self-test-from-pictures must come with --pictures")


def output_paths(output: Path | None, names: Sequence[str]) -> dict[str, Path]:
    """Return the path of each format: `output` itself for one format, else `output` with each suffix.

    Raise click.UsageError if one format is to be written to a name with the suffix of another.
    """
    if output is not None and len(names) == 1:
        suffix = FORMATS[names[0]].suffix
        other = next((name for name, kind in FORMATS.items() if kind.suffix == output.suffix), names[0])
        if output.suffix != suffix and other != names[0]:
            raise click.UsageError(
                f"--output must not have the suffix of another format, got {output}: give --format {other}, "
                f"or a name that ends in {suffix}"
            )
        return {names[0]: output}
    # A number, as in `v1.2`, is no suffix.
    stem = output or DEFAULT_OUTPUT
    stem = stem if stem.suffix[1:].isdecimal() else stem.with_suffix("")
    paths = {name: stem.with_name(stem.name + FORMATS[name].suffix) for name in names}
    if len(set(paths.values())) < len(paths):
        raise click.UsageError(f"--format must not have two formats of one suffix, got {', '.join(names)}")
    return paths
