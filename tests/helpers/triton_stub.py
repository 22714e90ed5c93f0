"""What Triton's Python backend gives to a model, as far as Lensbox's model uses it."""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class Tensor:
    def __init__(self, name: str, values: Any) -> None:
        self.name, self.values = name, values

    def as_numpy(self) -> Any:
        return self.values


class TritonError:
    INVALID_ARG, INTERNAL = "invalid", "internal"

    def __init__(self, message: str, code: str) -> None:
        self.message, self.code = message, code


class InferenceResponse:
    def __init__(
        self, output_tensors: "list[Tensor] | None" = None, error: TritonError | None = None
    ) -> None:
        self.found = {tensor.name: tensor.as_numpy() for tensor in output_tensors or []}
        self.error = error


def request(**inputs: Any) -> Any:
    """A request with these inputs."""
    return SimpleNamespace(inputs={name: np.asarray(values) for name, values in inputs.items()})


def backend_module() -> ModuleType:
    """`triton_python_backend_utils`."""
    module = ModuleType("triton_python_backend_utils")
    module.Tensor, module.TritonError, module.InferenceResponse = Tensor, TritonError, InferenceResponse  # type: ignore[attr-defined]

    def get_input_tensor_by_name(request: Any, name: str) -> Tensor | None:
        return Tensor(name, request.inputs[name]) if name in request.inputs else None

    module.get_input_tensor_by_name = get_input_tensor_by_name  # type: ignore[attr-defined]
    return module
