"""The model of Triton's Python backend: the ONNX file in onnxruntime, with thresholds per request.

Triton imports this file as `model.py`. The file needs numpy and onnxruntime, but not Lensbox.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as backend

THRESHOLDS = ("score_threshold", "iou_threshold")
Pair = tuple[float, float]  # score and IoU thresholds of a request


class TritonPythonModel:
    """The model; Triton's Python backend requires this name."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Load the ONNX file.

        arguments: `model_config` as JSON, `model_repository` (this model's folder), `model_version`.
        """
        config = json.loads(arguments["model_config"])
        parameters = {key: entry["string_value"] for key, entry in config["parameters"].items()}
        self.defaults = {name: float(parameters[name]) for name in THRESHOLDS}
        self.outputs = [output["name"] for output in config["output"]]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(parameters["threads"])
        path = Path(arguments["model_repository"]) / arguments["model_version"] / "detector.onnx"
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return the responses to one batch; requests with equal thresholds are computed together."""
        answers: list[Any] = [None] * len(requests)
        alike: dict[Pair, list[int]] = {}
        for index, request in enumerate(requests):
            try:
                alike.setdefault(self._thresholds(request), []).append(index)
            except ValueError as error:
                answers[index] = _refusal(str(error), backend.TritonError.INVALID_ARG)
        for pair, indices in alike.items():
            for index, answer in zip(
                indices, self._detect([requests[i] for i in indices], pair), strict=True
            ):
                answers[index] = answer
        return answers

    def _thresholds(self, request: Any) -> Pair:
        score, overlap = (self._threshold(request, name) for name in THRESHOLDS)
        return score, overlap

    def _threshold(self, request: Any, name: str) -> float:
        tensor = backend.get_input_tensor_by_name(request, name)
        if tensor is None:
            return self.defaults[name]
        values = np.unique(tensor.as_numpy())
        if len(values) != 1 or not 0 <= values[0] <= 1:  # written so that NaN fails
            got = ", ".join(map(str, values.tolist()))
            raise ValueError(
                f"{name} must be one number between 0 and 1 for all images of a request, got {got}"
            )
        return float(values[0])

    def _detect(self, requests: list[Any], pair: Pair) -> list[Any]:
        images = [backend.get_input_tensor_by_name(request, "images").as_numpy() for request in requests]
        feed = {"images": np.concatenate(images)}
        feed |= {name: np.array(value, np.float32) for name, value in zip(THRESHOLDS, pair, strict=True)}
        try:
            found = self.session.run(self.outputs, feed)
        except Exception as error:  # onnxruntime's errors have no common base
            return [_refusal(str(error), backend.TritonError.INTERNAL) for _ in requests]
        ends = np.cumsum([len(part) for part in images])[:-1]
        split = zip(*(np.split(values, ends) for values in found), strict=True)
        return [self._answer(values) for values in split]

    def _answer(self, values: tuple[Any, ...]) -> Any:
        tensors = [backend.Tensor(name, value) for name, value in zip(self.outputs, values, strict=True)]
        return backend.InferenceResponse(output_tensors=tensors)


def _refusal(message: str, code: Any) -> Any:
    return backend.InferenceResponse(error=backend.TritonError(message, code))
