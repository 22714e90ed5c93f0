"""The one place that talks to onnxruntime: it runs an artifact's ONNX file on the CPU."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError


class Value(NamedTuple):
    """An input or output of a model. types: ONNX's names, such as "float"; several in a rule that leaves a
    choice. shape: None where a size varies."""

    types: tuple[str, ...]
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        sizes = ", ".join("any" if size is None else str(size) for size in self.shape)
        return f"{' or '.join(self.types)} [{sizes}]"


class OnnxruntimeSession:
    """A model in onnxruntime; `run` may be called from several threads at once, which share its threads.

    properties: the model's `metadata_props`. inputs, outputs: by name, in the model's order.
    """

    def __init__(self, data: bytes, name: str, threads: int) -> None:
        """threads: of the CPU for one batch. Raises ArtifactError, which calls the file `name`, where
        onnxruntime is not installed or does not take the model."""
        try:
            import onnxruntime
        except ImportError as error:
            raise ArtifactError(
                f"{name} is an ONNX file, which needs onnxruntime: pip install 'lensbox[onnx]' ({error})"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Only what ends a call: the rest is advice to whoever exports.
        options.log_severity_level = 4
        # Weights that the model says lie in other files are looked for where there can be none. Else they are
        # taken from the current folder, and no hash and no signature of the artifact covers them.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
        try:
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no common base
            raise ArtifactError(
                f"{name} cannot be loaded by onnxruntime {onnxruntime.__version__}: {error}"
            ) from error
        self.properties: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self.inputs = {value.name: _value(value) for value in self._session.get_inputs()}
        self.outputs = {value.name: _value(value) for value in self._session.get_outputs()}

    def run(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        """What `detect` of the model finds; images: uint8 [B, c, h, w], contiguous, on the CPU, B from 1."""
        feed = {
            "images": images.numpy(),
            "score_threshold": np.array(score_threshold, np.float32),
            "iou_threshold": np.array(iou_threshold, np.float32),
        }
        found = self._session.run(None, feed)
        return dict(zip(self.outputs, map(torch.from_numpy, found), strict=True))


def _value(value: Any) -> Value:
    """value: an `onnxruntime.NodeArg`, whose type reads 'tensor(float)'."""
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    return Value((kind,), tuple(size if isinstance(size, int) else None for size in value.shape))
