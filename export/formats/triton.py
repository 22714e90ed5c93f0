"""Model repositories for Triton Inference Server; all models are verified before the first is written."""

import io
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor
from tritonclient.grpc import model_config_pb2 as triton

from lensbox.artifact.metadata import METADATA_FILE
from lensbox.artifact.seal import MARKER
from lensbox.export.formats.onnx import OnnxExportError
from lensbox.export.formats.triton_config import THRESHOLDS, config_text, model_config, notes
from lensbox.export.pipeline import MadeArtifact, make_artifact
from lensbox.export.plan import Plan
from lensbox.export.verify.verifier import verify_fixed
from lensbox.runtime.torchscript import quiet_torchscript, torchscript_call

_logger = logging.getLogger(__name__)

_VERSION = "1"
_PYTHON_MODEL = Path(__file__).with_name("triton_python_model.py")


def make_repository(plan: Plan, folder: Path) -> dict[Path, bytes]:
    """Return the content of each file of a Triton model repository, by its path below `folder`.

    The repository has three models, named after the specification: NAME_pytorch, an artifact with the method
    of the PyTorch backend; NAME_onnx, for the ONNX Runtime backend; and NAME_python, the ONNX file in a
    Python backend. The first two use the plan's thresholds, as the requests of a batch share them; requests
    to NAME_python may set thresholds. If ONNX cannot express the detector, only NAME_pytorch is made, with a
    warning. README.md is for the operator. Raises the errors of `save_artifact`.
    """
    name = _model_name(plan)
    _logger.info("making a model for Triton's PyTorch backend")
    path = folder / f"{name}_pytorch" / _VERSION / "model.pt"
    script = _torchscript(plan, path)
    files = {path: script.content}
    configs = [
        model_config(
            f"{name}_pytorch",
            "pytorch",
            script.metadata,
            parameters={"DISABLE_OPTIMIZED_EXECUTION": "true", "INFERENCE_MODE": "true"},
        )
    ]
    version = folder / f"{name}_python" / _VERSION
    try:
        graph = make_artifact(plan, "onnx", str(version / "detector.onnx"))
    except OnnxExportError as error:
        _logger.warning("the repository has only a model for Triton's PyTorch backend: %s", error)
    else:
        path = folder / f"{name}_onnx" / _VERSION / "model.onnx"
        files[path] = _onnx(plan, graph, str(path))
        configs.append(model_config(f"{name}_onnx", "onnxruntime", graph.metadata))
        files[version / "detector.onnx"] = graph.content
        files[version / "model.py"] = _PYTHON_MODEL.read_bytes()
        defaults = dict(zip(THRESHOLDS, map(repr, plan.thresholds), strict=True))
        configs.append(
            model_config(
                f"{name}_python",
                "python",
                graph.metadata,
                kind=triton.ModelInstanceGroup.KIND_CPU,
                optional=THRESHOLDS,
                parameters={**defaults, "threads": "0"},
            )
        )
    # Written after the models: for Triton, a folder with a configuration is a model.
    files |= {folder / config.name / "config.pbtxt": config_text(config) for config in configs}
    files[folder / "README.md"] = notes(script.metadata, [config.name for config in configs]).encode()
    return files


def _model_name(plan: Plan) -> str:
    """Return the specification's name with only characters that are allowed in folders and URLs."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", plan.detector.specification.name).strip("_") or "detector"


def _torchscript(plan: Plan, path: Path) -> MadeArtifact:
    """Make an artifact whose `forward` is `detect` at the plan's thresholds.

    `forward` takes `images` and returns a tuple of outputs in the order of `metadata.outputs`. The backend
    matches inputs by the names of arguments, and outputs by the order in `config.pbtxt`.
    """
    outputs = ", ".join(f'found["{name}"]' for name in plan.outputs)
    score, overlap = (repr(float(value)) for value in plan.thresholds)
    source = (
        "def forward(self, images: Tensor):\n"
        f"    found = self.detect_named(images, {score}, {overlap})\n"
        f"    return {outputs}\n"
    )
    made = make_artifact(plan, "torchscript", str(path), forward=source)
    with quiet_torchscript():
        module = torch.jit.load(io.BytesIO(made.content))

    def forward(images: Tensor) -> dict[str, Tensor]:
        with torchscript_call():
            return dict(zip(plan.outputs, module(images), strict=True))

    verify_fixed(forward, made.metadata, plan.reference, path.name)
    return made


def _onnx(plan: Plan, made: MadeArtifact, name: str) -> bytes:
    """Return the ONNX artifact's model with its default thresholds as constants. name: for errors."""
    model = onnx.load_from_string(made.content)
    thresholds = made.metadata.score_threshold, made.metadata.iou_threshold
    for threshold, value in zip(THRESHOLDS, thresholds, strict=True):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), threshold))
    _remove(model.graph.input, "name", THRESHOLDS)
    # The model is no artifact any more: metadata and hash would not match.
    _remove(model.metadata_props, "key", (METADATA_FILE, MARKER.decode()))
    content: bytes = model.SerializeToString()
    onnx.checker.check_model(content, full_check=True)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(images: Tensor) -> dict[str, Tensor]:
        values = session.run(plan.outputs, {"images": images.numpy()})
        return dict(zip(plan.outputs, map(torch.from_numpy, values), strict=True))

    verify_fixed(run, made.metadata, plan.reference, name)
    return content


def _remove(entries: Any, key: str, names: Sequence[str]) -> None:
    """Remove the entries of a protocol buffer's list whose `key` is among `names`."""
    for index in reversed(range(len(entries))):
        if getattr(entries[index], key) in names:
            del entries[index]
