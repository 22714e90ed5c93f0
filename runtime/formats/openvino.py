"""The one place that talks to OpenVINO: another runtime for an artifact's ONNX file on the CPU."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.runtime.formats.onnx_options import OnnxOptions


class OpenvinoSession:
    """A model in OpenVINO; `run` may be called from several threads at once."""

    def __init__(self, data: bytes, name: str, options: OnnxOptions, outputs: Sequence[str]) -> None:
        """outputs: the names of the model's outputs, in their order. Raises ArtifactError, which calls the
        file `name`, where OpenVINO is not installed or does not take the model."""
        try:
            import openvino
        except ImportError as error:
            raise ArtifactError(
                f"{name} is to be run by openvino: pip install 'lensbox[openvino]' ({error})"
            ) from error
        self._outputs = tuple(outputs)
        settings = {
            # OpenVINO rounds to bfloat16 by itself where the CPU has instructions for it.
            "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[options.precision],
            "INFERENCE_NUM_THREADS": options.threads or torch.get_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",
        }
        core = openvino.Core()
        if options.precision == "bfloat16" and "BF16" not in core.get_property(
            "CPU", "OPTIMIZATION_CAPABILITIES"
        ):
            raise ArtifactError(
                f"{name} is to be run in bfloat16, for which this CPU has no instructions: precision must be "
                '"float32"'
            )
        try:
            self._model = core.compile_model(core.read_model(data), "CPU", settings)
        except Exception as error:  # its C++ errors come as several kinds
            raise ArtifactError(
                f"{name} cannot be loaded by openvino {openvino.__version__}: {error}"
            ) from error

    def run(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        """What `detect` of the model finds; images: uint8 [B, c, h, w], contiguous, on the CPU, B from 1."""
        feed = [images.numpy(), np.array(score_threshold, np.float32), np.array(iou_threshold, np.float32)]
        found = self._model.create_infer_request().infer(feed)
        return {name: torch.from_numpy(np.array(found[index])) for index, name in enumerate(self._outputs)}
