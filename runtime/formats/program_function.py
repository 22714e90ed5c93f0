"""A graph of a program as a function of tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx

from lensbox.common.errors import ArtifactError, InputError


@dataclass
class GraphInput:
    """An input. sizes: numbers, or texts for free sizes; equal texts are equal sizes."""

    name: str
    dtype: torch.dtype
    sizes: list[int | str]


@dataclass
class Graph:
    """A graph with its weights, as a function of tensors. It runs where the weights are."""

    module: fx.GraphModule
    weights: list[Tensor]
    inputs: list[GraphInput]
    # The least and the largest value of free sizes.
    ranges: Mapping[str, tuple[int, int]]
    _stored: frozenset[int] = field(init=False)  # where the weights lie

    def __post_init__(self) -> None:
        self._stored = _storages(self.weights)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs.

        Raise InputError for inputs of other dtypes or sizes, and ArtifactError if the graph writes into an
        input or a weight.
        """
        self._check(inputs)
        found: tuple[Tensor, ...] = self.module(self._stored | _storages(inputs), *self.weights, *inputs)
        return found

    def _check(self, given: Sequence[Tensor]) -> None:
        if len(given) != len(self.inputs):
            raise InputError(f"inputs must be {len(self.inputs)} tensors, got {len(given)}")
        chosen: dict[str, int] = {}  # by the first input that has the size

        def fits(rule: int | str, size: int) -> bool:
            if isinstance(rule, int):
                return size == rule
            least, most = self.ranges.get(rule, (0, size))
            return size == chosen.setdefault(rule, size) and least <= size <= most

        for index, (wanted, tensor) in enumerate(zip(self.inputs, given, strict=True)):
            if (
                tensor.dtype != wanted.dtype
                or tensor.dim() != len(wanted.sizes)
                or not all(map(fits, wanted.sizes, tensor.shape))
            ):
                raise InputError(
                    f"inputs[{index}] ({wanted.name}) must be {wanted.dtype} {wanted.sizes}, got "
                    f"{tensor.dtype} {list(tensor.shape)}"
                )


def _storages(tensors: Sequence[Tensor]) -> frozenset[int]:
    return frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors) - {0}


def require_own(tensor: Tensor, given: frozenset[int], name: str) -> None:
    """Raise ArtifactError if a tensor lies in the memory of an input or a weight, which other runs see."""
    if tensor.untyped_storage().data_ptr() in given:
        raise ArtifactError(f"the graph must not change inputs or weights, as {name} does")
