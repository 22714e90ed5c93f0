"""Options for running an ONNX file."""

from dataclasses import dataclass
from typing import Literal

OnnxRuntime = Literal["onnxruntime", "openvino"]


@dataclass(frozen=True)
class OnnxOptions:
    """The library that runs an ONNX file, and its options. Other artifacts ignore them.

    runtime: "onnxruntime", or "openvino" (`pip install 'lensbox[openvino]'`).
    threads: of the CPU for one batch; None for as many as torch uses when the file is loaded.
    precision: "float32", or "bfloat16", which openvino alone has, on CPUs with instructions for it: what goes
        into convolutions is then rounded, so measure what that changes first.

    Raises ValueError naming the field that is wrong.
    """

    runtime: OnnxRuntime = "onnxruntime"
    threads: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        if self.runtime not in ("onnxruntime", "openvino"):
            raise ValueError(f'runtime must be "onnxruntime" or "openvino", got {self.runtime!r}')
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise ValueError(f"threads must be a whole number from 1, or None, got {self.threads!r}")
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f'precision must be "float32" or "bfloat16", got {self.precision!r}')
        if self.precision != "float32" and self.runtime != "openvino":
            raise ValueError(f'precision must be "float32" with {self.runtime}, got {self.precision!r}')
