"""Sample inputs of every op, for the tests of all ops. A new op needs a row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import pytest
import torch
from box_reference import random_boxes
from jpeg_files import BASELINE, RESTARTED, TALL
from torch import Tensor

import lensbox.ops  # noqa: F401 registers the ops

EPS = 1e-7
Arguments = tuple[Any, ...]  # tensors, lists of tensors, numbers, lists of flags, None
# Ops that give equal bits on CPU and CUDA. The others sum in another order there, and round differently.
EXACT = ("giou", "pairwise_giou", "padded_nms", "fit")


class Inputs(NamedTuple):
    """The tensors of the samples, on one device.

    pred: float32 [B, N, 4]. target: uint8 [B, N, 4]; most slots are padding. wide: the same boxes in
    float32, without padding. photographs: uint8 [C, H, W], of different sizes and strides.
    """

    pred: Tensor
    target: Tensor
    wide: Tensor
    photographs: tuple[Tensor, ...]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Inputs":
        pred, target, wide = map(function, self[:3])
        return Inputs(pred, target, wide, tuple(map(function, self.photographs)))

    def copy_(self, source: "Inputs") -> None:
        """Copy all tensors in place, from any device."""
        for mine, theirs in zip(self[:3] + self[3], source[:3] + source[3], strict=True):
            mine.copy_(theirs)


def make_inputs(device: torch.device, images: int = 6, slots: int = 40) -> Inputs:
    """Return inputs; their shapes and strides depend only on the arguments."""
    target = random_boxes(images, slots, dtype=torch.uint8)
    wide = target.float()
    target[torch.rand(images, slots) > 0.2] = 0
    photographs = (
        _photograph(slots, 2 * slots, 3).permute(2, 0, 1),
        _photograph(3 * slots, slots + 3, 4).permute(2, 0, 1),
        _photograph(3, slots, slots + 1),
        _photograph(1, slots + 5, slots),
    )
    inputs = Inputs(random_boxes(images, slots), target, wide, photographs)
    return inputs.map(lambda tensor: tensor.to(device))


def _photograph(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8)


@dataclass(frozen=True)
class Sample:
    """A call of an op.

    arguments: makes them without waiting for the device, so that a graph can be captured. trains: positions
    of the arguments that get a gradient.
    """

    name: str
    op: str
    arguments: Callable[[Inputs], Arguments]
    trains: tuple[int, ...] = ()

    @property
    def overload(self) -> torch._ops.OpOverload:
        packet = getattr(torch.ops.lensbox, self.name_of_op)
        overload: torch._ops.OpOverload = getattr(packet, self.op.partition(".")[2] or "default")
        return overload

    @property
    def name_of_op(self) -> str:
        """Return the name without the overload."""
        return self.op.partition(".")[0]

    def leaves(self, inputs: Inputs, layout: Callable[[Tensor], Tensor] = torch.detach) -> list[Any]:
        """Return the arguments; those that train are leaves. layout: changes the strides of all tensors."""
        arguments = [map_tensors(value, layout) for value in self.arguments(inputs)]
        for position in self.trains:
            arguments[position].requires_grad_()
        return arguments

    def with_gradients(self, outputs: list[Tensor], arguments: list[Any]) -> list[Tensor]:
        """Return the outputs of a call, and the gradients of its leaves."""
        if not self.trains:
            return outputs
        (output,) = outputs
        leaves = [arguments[position] for position in self.trains]
        return [output.detach(), *torch.autograd.grad(output, leaves, torch.full_like(output, 2.5))]

    def run(self, inputs: Inputs, layout: Callable[[Tensor], Tensor] = torch.detach) -> list[Tensor]:
        """Return the outputs and the gradients. layout: as for `leaves`."""
        arguments = self.leaves(inputs, layout)
        return self.with_gradients(as_list(self.overload(*arguments)), arguments)


def holds_tensors(value: Any) -> TypeGuard[Tensor | list[Tensor]]:
    """Return whether a value is a tensor or a list of tensors."""
    return isinstance(value, Tensor) or (isinstance(value, list) and isinstance(value[0], Tensor))


def map_tensors(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Apply a function to a tensor, or to each tensor of a list; return other values unchanged."""
    if not holds_tensors(value):
        return value
    return function(value) if isinstance(value, Tensor) else [function(tensor) for tensor in value]


def as_list(result: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def _weight(inputs: Inputs) -> Tensor:
    return inputs.pred[..., 0].floor() % 3


def _scalar(inputs: Inputs, value: float) -> Tensor:
    return torch.full((), value, device=inputs.pred.device)


def _packed(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return three targets per image, one after another, and their offsets."""
    images = inputs.pred.shape[0]
    offsets = torch.arange(images + 1, device=inputs.pred.device) * 3
    return inputs.wide[:, :3].reshape(-1, 4), offsets


def _scores(inputs: Inputs) -> Tensor:
    return inputs.pred[..., 1] / 256  # exact, so that CPU and GPU get the same scores


def _fit(inputs: Inputs, height: int, width: int, order: str) -> Arguments:
    return list(inputs.photographs), height, width, "letterbox", "bilinear", order, 9, None, None, None


def _kinds(inputs: Inputs) -> Tensor:
    return inputs.pred[..., 0].long() % 2


def _geometry(inputs: Inputs) -> Tensor:
    """Return numbers above 0, float32 [B, 6]."""
    return torch.cat([inputs.pred[:, 0], inputs.pred[:, 1]], 1)[:, :6].abs() + 1


BOTH = [True, True]

SAMPLES = [
    Sample("giou", "giou", lambda i: (i.pred, i.wide, EPS), (0, 1)),
    Sample("giou of integers", "giou", lambda i: (i.pred, i.target, EPS), (0,)),
    Sample("giou gradients", "_giou_backward", lambda i: (i.pred[..., 0], i.pred, i.wide, EPS, BOTH)),
    Sample("pairwise", "pairwise_giou", lambda i: (i.pred, i.wide[:, :7], EPS), (0, 1)),
    Sample(
        "pairwise gradients",
        "_pairwise_giou_backward",
        lambda i: (i.pred[..., :3], i.pred, i.wide[:, :3], EPS, BOTH),
    ),
    Sample("loss", "masked_giou_loss", lambda i: (i.pred, i.target, None, EPS), (0,)),
    Sample("loss of two sides", "masked_giou_loss", lambda i: (i.pred, i.wide, None, EPS), (0, 1)),
    Sample("weighted loss", "masked_giou_loss", lambda i: (i.pred, i.wide, _weight(i), EPS), (0,)),
    Sample(
        "loss of trained weights", "masked_giou_loss", lambda i: (i.pred, i.wide, _weight(i), EPS), (0, 1, 2)
    ),
    Sample("loss forward", "_masked_giou_loss_forward", lambda i: (i.pred, i.target, None, EPS)),
    Sample(
        "loss gradients",
        "_masked_giou_loss_backward",
        lambda i: (
            *(_scalar(i, 2.0), i.pred, i.wide, _weight(i), _scalar(i, 0.5)),
            *(_scalar(i, 9.0).double(), EPS, [True, True, True]),
        ),
    ),
    Sample("loss and gradient", "masked_giou_loss_and_grad", lambda i: (i.pred, i.target, None, EPS)),
    Sample(
        "weighted loss and gradient", "masked_giou_loss_and_grad", lambda i: (i.pred, i.wide, _weight(i), EPS)
    ),
    Sample("jagged loss", "jagged_giou_loss", lambda i: (i.pred, *_packed(i), EPS), (0, 1)),
    Sample("jagged loss forward", "_jagged_giou_loss_forward", lambda i: (i.pred, *_packed(i), EPS)),
    Sample(
        "jagged loss gradients",
        "_jagged_giou_loss_backward",
        lambda i: (_scalar(i, 2.0), i.pred, *_packed(i), _scalar(i, 9.0).double(), EPS, BOTH),
    ),
    Sample("nms", "padded_nms", lambda i: (i.pred, _scores(i), 0.3, 0.05, 300, 30, None)),
    Sample("nms with categories", "padded_nms", lambda i: (i.pred, _scores(i), 0.3, 0.05, 30, 20, _kinds(i))),
    Sample(
        "nms of many candidates",
        "padded_nms",
        lambda i: (i.pred.repeat(1, 40, 1), _scores(i).repeat(1, 40), 0.3, 0.05, 1600, 50, None),
    ),
    Sample(
        "nms with tensors as thresholds",
        "padded_nms.tensor_thresholds",
        lambda i: (i.pred, _scores(i), torch.tensor(0.3), torch.tensor(0.05), 300, 30, _kinds(i)),
    ),
    Sample("letterbox", "fit", lambda i: _fit(i, 32, 48, "gray")),
    Sample("letterbox in colour", "fit", lambda i: _fit(i, 300, 64, "rgb")),
    Sample(
        "images fitted as numbers",
        "fit",
        lambda i: (
            *(list(i.photographs), 31, 64, "crop", "lanczos", "bgr", 9),
            *([0.5, 0.4, 0.3], [0.1, 0.2, 0.3], torch.float16),
        ),
    ),
    Sample(
        "nearest pixels",
        "fit",
        lambda i: (list(i.photographs), 30, 64, "stretch", "nearest", "rgb", 0, None, None, None),
    ),
    Sample(
        "pixels of OpenCV",
        "fit",
        lambda i: (list(i.photographs), 30, 65, "ultralytics", "opencv_linear", "bgr", 0, None, None, None),
    ),
    Sample("restored boxes", "restore_boxes", lambda i: (i.pred, _geometry(i)), (0,)),
    Sample("restored points", "restore_points", lambda i: (i.pred[..., :2], _geometry(i)), (0, 1)),
    Sample("windows", "geometry_of_windows", lambda i: (_geometry(i), _geometry(i).cumsum(1)), (0,)),
]


def name_of(sample: Sample) -> str:
    return sample.name.replace(" ", "_")


every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=name_of)


# --- functions of the runtimes and of JPEG files, which are no ops of tensors ---


def _file(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _detections(count: int, extras: int) -> list[Tensor]:
    boxes = torch.rand(count, 2).repeat(1, 2) * 50
    boxes[:, 2:] += 1 + torch.rand(count, 2) * 20
    further = [torch.rand(count, 3) for _ in range(extras)]
    return [boxes, torch.rand(count), torch.randint(0, 2, (count,)), *further]


def _compare(count: int, extras: int) -> Arguments:
    one = _detections(count, extras)
    other = [tensor.clone() for tensor in one]
    if count > 1:
        other[0][0] += 30
        other = [tensor[torch.randperm(count)] for tensor in other[:3]] + other[3:]
    return one, other, 0.1, 0.5, [0.5, 1e-3, 0.01, 0.01], [0.5] * extras, [True, False]


def _tiles(counts: list[int], with_labels: bool) -> Arguments:
    boxes, scores, labels = _detections(sum(counts), 0)
    windows = [0, 0, 100, 80, 0, 0, 60, 80, 40, 0, 100, 80, 20, 10, 80, 70]
    return boxes, scores, labels if with_labels else None, counts, windows, 100, 80, 0.5


def _planes(across: int, down: int) -> Arguments:
    levels = torch.randint(0, 256, (3, 13, 18), dtype=torch.uint8)
    chroma = levels[1:, : (12 + down) // down, : (17 + across) // across]
    return levels[0], chroma[0], chroma[1], across, down


# A model without nodes: field 7 (graph) is empty, field 14 (metadata_props) holds a key and a value.
_PROPERTY = b"\x0a\x0clensbox.json\x12\x02{}"
_ONNX = b"\x08\x08\x3a\x00" + b"\x72" + bytes([len(_PROPERTY)]) + _PROPERTY
_CPU: Any = torch.device("cpu")

RUNTIME_SAMPLES: dict[str, list[Callable[[], Arguments]]] = {
    "lensbox_jpeg::is_well_formed": [
        lambda: (_file(BASELINE), 1),
        lambda: (_file(RESTARTED), 7),
        lambda: (_file(TALL), 40),
    ],
    "lensbox_jpeg::read_files": [lambda: (["pyproject.toml", "README.md"],)],
    "lensbox_jpeg::headers": [lambda: ([_file(BASELINE), _file(RESTARTED), _file(b"none")],)],
    "lensbox_jpeg::to_rgb": [lambda: _planes(2, 2), lambda: _planes(1, 1), lambda: _planes(2, 1)],
    "lensbox_jpeg::decoder_fault": [lambda: (_CPU,)],
    "lensbox_jpeg::decode_luma": [lambda: ([_file(BASELINE)], _CPU)],
    "lensbox_jpeg::decode_rgb": [lambda: ([_file(BASELINE)], _CPU)],
    "lensbox_runtime::tile_windows": [
        lambda: (4000, 3000, 640, 640, 0, 0.25, True),
        lambda: (900, 3000, 128, 256, 300, 0.0, False),
    ],
    "lensbox_runtime::tile_batch": [lambda: (True, 640, 640), lambda: (False, 256, 128)],
    "lensbox_runtime::merge_tiles": [
        lambda: _tiles([4, 0, 3, 5], with_labels=True),
        lambda: _tiles([0, 0, 0, 0], with_labels=False),
    ],
    "lensbox_runtime::onnx_metadata": [lambda: (_file(_ONNX),)],
    "lensbox_runtime::compare": [lambda: _compare(5, 0), lambda: _compare(4, 2), lambda: _compare(0, 1)],
}
