"""Find tensors that a detector makes on the CPU, where its images are on a GPU."""

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lensbox.model import Detector
from lensbox.model.protocol_check import is_users

_FACTORIES = frozenset(
    getattr(torch, name)
    for name in ("arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "tensor", "zeros")
)
_MOVES = frozenset((Tensor.to, Tensor.type_as, Tensor.cuda))
_PLACES = (torch.device, str, Tensor)
_INDEXING = frozenset((Tensor.__getitem__, Tensor.__setitem__))  # takes indices of the CPU


def cpu_tensors(detector: Detector) -> list[str]:
    """Return the lines, 'file:line: code', of tensors made without `device=` that meet tensors of the images.

    A single number may be on the CPU, and so may an index.
    """
    specification = detector.specification
    shape = 2, specification.channels, specification.height, specification.width
    images = torch.zeros(shape, dtype=torch.uint8)
    with torch.no_grad(), _Watch() as watch:
        detector.detect(images, 0.0, specification.iou_threshold)
    return list(dict.fromkeys(watch.lines))


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._made: dict[int, tuple[Tensor, str]] = {}  # by id; the tensor is kept so that its id stays

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """See torch.overrides."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        further = (*args[1:], *kwargs.values())
        operands = list(_tensors((*args, *kwargs.values())))
        made = [self._made[id(value)][1] for value in operands if id(value) in self._made]
        if func in _FACTORIES and kwargs.get("device") is None and not operands:
            frames = [frame for frame in traceback.extract_stack() if is_users(frame.filename)]
            if frames and isinstance(result, Tensor) and result.dim() > 0:
                line = f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}"
                self._made[id(result)] = result, line
        elif made and func in _MOVES and any(isinstance(value, _PLACES) for value in further):
            self._made.pop(id(result), None)  # on a CPU, the tensor itself
        elif made:
            if len(made) == len(operands):
                for value in _tensors((result,)):
                    self._made[id(value)] = value, made[0]
            elif func not in _INDEXING and any(
                value.dim() > 0 and id(value) not in self._made for value in operands
            ):
                self.lines += made
        return result


def _tensors(values: Sequence[Any]) -> Any:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
