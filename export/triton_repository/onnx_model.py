"""The model of Triton's ONNX Runtime backend: the ONNX file with its thresholds as constants."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor

from lensbox.artifact.archive import INPUTS
from lensbox.artifact.metadata import METADATA_FILE
from lensbox.artifact.seal import MARKER
from lensbox.export.artifact_writer import MadeArtifact
from lensbox.export.triton_repository.proof import prove_fixed
from lensbox.model import Detector


def make_onnx_model(detector: Detector, made: MadeArtifact, name: str, pictures: Sequence[Tensor]) -> bytes:
    """Of a detector's ONNX artifact, a model that finds the same at the artifact's default thresholds.

    Raises ArtifactError, which calls the model `name`, if it does not.
    """
    model = onnx.load_from_string(made.content)
    thresholds = made.metadata.score_threshold, made.metadata.iou_threshold
    for threshold, value in zip(INPUTS[1:], thresholds, strict=True):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), threshold))
    _remove(model.graph.input, "name", INPUTS[1:])
    # It is no artifact any more: its description would not fit, nor its hash.
    _remove(model.metadata_props, "key", (METADATA_FILE, MARKER.decode()))
    content: bytes = model.SerializeToString()
    onnx.checker.check_model(content, full_check=True)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = made.metadata.outputs

    def run(images: Tensor) -> dict[str, Tensor]:
        values = session.run(names, {"images": images.numpy()})
        return dict(zip(names, map(torch.from_numpy, values), strict=True))

    prove_fixed(detector, run, made.metadata, pictures, name)
    return content


def _remove(entries: Any, key: str, names: Sequence[str]) -> None:
    """Removes the entries of a protocol buffer's list whose `key` is among `names`."""
    for index in reversed(range(len(entries))):
        if getattr(entries[index], key) in names:
            del entries[index]
