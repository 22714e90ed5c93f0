"""The files of a model repository, each model proven before the first is written."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from tritonclient.grpc import model_config_pb2 as triton

from lensbox.export.artifact_writer import MadeArtifact, checked_for_export
from lensbox.export.onnx_exporter import UnsupportedByOnnxError
from lensbox.export.onnx_writer import make_onnx
from lensbox.export.triton_repository.config import THRESHOLDS, config_text, model_config
from lensbox.export.triton_repository.notes import notes
from lensbox.export.triton_repository.onnx_model import make_onnx_model
from lensbox.export.triton_repository.torchscript import make_torchscript
from lensbox.model import Detector

_logger = logging.getLogger(__name__)

_VERSION = "1"
_PYTHON_MODEL = Path(__file__).with_name("python_model.py")


def make_repository(
    detector: Detector,
    folder: Path,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    pictures: Sequence[Tensor] = (),
) -> dict[Path, bytes]:
    """The content of each file of a model repository of Triton, by its path below `folder`.

    Three models of one detector, named after its specification: NAME_pytorch, an artifact with the method
    that the PyTorch backend calls, and NAME_onnx, for the ONNX Runtime backend, both at the thresholds given
    here (None for the detector's), since batches of several requests share them; and NAME_python, the ONNX
    file in a Python backend, whose requests may set them. A detector that ONNX cannot express has the first
    alone, and a warning says so. README.md is for the operator. Errors are those of `save_artifact` and
    `save_onnx`.
    """
    detector, thresholds = checked_for_export(detector, score_threshold, iou_threshold)
    name = _model_name(detector)
    _logger.info("making a model for Triton's PyTorch backend")
    path = folder / f"{name}_pytorch" / _VERSION / "model.pt"
    script = make_torchscript(detector, str(path), thresholds, pictures)
    metadata = script.metadata
    files = {path: script.content}
    configs = [
        model_config(
            f"{name}_pytorch",
            "pytorch",
            metadata,
            parameters={"DISABLE_OPTIMIZED_EXECUTION": "true", "INFERENCE_MODE": "true"},
        )
    ]
    graph = _onnx(detector, folder, thresholds, pictures, script)
    if graph is not None:
        path = folder / f"{name}_onnx" / _VERSION / "model.onnx"
        files[path] = make_onnx_model(detector, graph, str(path), pictures)
        configs.append(model_config(f"{name}_onnx", "onnxruntime", graph.metadata))
        version = folder / f"{name}_python" / _VERSION
        files[version / "detector.onnx"] = graph.content
        files[version / "model.py"] = _PYTHON_MODEL.read_bytes()
        defaults = dict(zip(THRESHOLDS, map(repr, thresholds), strict=True))
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
    # Behind the models: Triton takes a folder for a model once it has a configuration.
    files |= {folder / config.name / "config.pbtxt": config_text(config) for config in configs}
    files[folder / "README.md"] = notes(metadata, [config.name for config in configs]).encode()
    return files


def _model_name(detector: Detector) -> str:
    """The specification's name, which may be any text, as one that folders and URLs take."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", detector.specification.name).strip("_") or "detector"


def _onnx(
    detector: Detector,
    folder: Path,
    thresholds: tuple[float, float],
    pictures: Sequence[Tensor],
    script: MadeArtifact,
) -> MadeArtifact | None:
    path = folder / f"{_model_name(detector)}_python" / _VERSION / "detector.onnx"
    try:
        return make_onnx(detector, str(path), *thresholds, pictures, script.metadata)
    except UnsupportedByOnnxError as error:
        _logger.warning("the repository has a model for Triton's PyTorch backend alone: %s", error)
        return None
