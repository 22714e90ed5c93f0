"""The CPU kernels give the same bits with every instruction set.

A set other than this process's needs a new one, `python test_vectors.py INPUTS OUTPUTS`: torch reads
ATEN_CPU_CAPABILITY once.
"""

import os
import sys
from pathlib import Path

import pytest
import torch
from box_reference import BOX_DTYPES, FLOAT_DTYPES, extreme_boxes, random_boxes
from letterbox_cases import LAYOUTS, Case, random_cases
from programs import run_python
from torch import Tensor

from lensbox.ops import (
    fit,
    giou,
    jagged_giou_loss,
    letterbox,
    masked_giou_loss,
    masked_giou_loss_and_grad,
    padded_nms,
    pairwise_giou,
)

CAPABILITIES = ["DEFAULT", "AVX2", "AVX512"]  # ascending; a machine has each one up to its maximum


def make_boxes() -> list[tuple[Tensor, Tensor]]:
    """Return predictions and targets of every dtype, in sizes that are no multiple of a vector."""
    shape = (7, 83)
    pairs = [(random_boxes(*shape, dtype=dtype), random_boxes(*shape)) for dtype in FLOAT_DTYPES]
    pairs += [(random_boxes(*shape), random_boxes(*shape, dtype=dtype)) for dtype in BOX_DTYPES]
    for dtype in FLOAT_DTYPES:
        hostile = [extreme_boxes(shape[0] * shape[1], dtype).view(*shape, 4) for _ in range(2)]
        pairs.append((hostile[0], hostile[1]))
    ties = random_boxes(*shape).round()
    pairs.append((ties, ties.clone()))
    missing = random_boxes(*shape)
    missing[:, ::5, 1] = float("nan")
    pairs.append((missing, random_boxes(*shape)))
    return pairs


def make_images() -> list[Tensor]:
    """Return images of every memory layout, in sizes that are no multiple of a vector."""
    cases = [*random_cases(60, seed=12), Case(3, 1080, 1920, 1, 1), Case(4, 900, 311, 1, 1)]
    layouts = ([*LAYOUTS.values()] * 6)[: len(cases)]
    return [layout(case.image()) for case, layout in zip(cases, layouts, strict=True)]


def with_gradients(result: Tensor, *leaves: Tensor) -> list[Tensor]:
    upstream = torch.arange(1, result.numel() + 1, dtype=result.dtype).view_as(result) / 7
    return [result.detach(), *torch.autograd.grad(result, leaves, upstream)]


def run_box_ops(pred: Tensor, target: Tensor) -> list[Tensor]:
    """Values and gradients of all ops on predictions and targets `[B, M, 4]`, padded and packed here."""
    leaf = pred.clone().requires_grad_()
    scores = (pred[..., 0] * 7).frac().nan_to_num()
    padded = target * (scores > 0.5).to(target.dtype)[..., None]
    counts = torch.arange(len(pred)).clamp(max=pred.shape[1])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    packed = target.flatten(0, 1)[: int(offsets[-1])]
    nms = [padded_nms(pred, scores, 0.3, 0.1, 200, 150, ids) for ids in (None, (scores * 50).long() % 3)]
    return [
        *with_gradients(giou(leaf, target), leaf),
        *with_gradients(giou(leaf.mT.contiguous().mT, target), leaf),
        *with_gradients(pairwise_giou(leaf, target), leaf),
        *with_gradients(masked_giou_loss(leaf, padded), leaf),
        *with_gradients(masked_giou_loss(leaf, target, scores), leaf),
        *masked_giou_loss_and_grad(pred, padded),
        *with_gradients(jagged_giou_loss(leaf, packed, offsets), leaf),
        *(output for outputs in nms for output in outputs),
    ]


def results_of(inputs: Path) -> list[list[Tensor]]:
    boxes, images = torch.load(inputs)
    results = [run_box_ops(pred, target) for pred, target in boxes]
    results += [list(letterbox(images, *canvas)) for canvas in ((40, 256, 1), (99, 50, 3), (300, 300, 3))]
    results += [
        list(fit(images, *sides, "ultralytics", "opencv_linear", order))
        for sides in ((40, 256), (99, 50), (640, 640))
        for order in ("gray", "rgb")
    ]
    return results


def run_with(capability: str, inputs: Path) -> list[list[Tensor]]:
    if capability == torch.backends.cpu.get_cpu_capability():  # of this process
        return results_of(inputs)
    outputs = inputs.with_name(f"{capability}.pt")
    environment = {"ATEN_CPU_CAPABILITY": capability.lower(), "PYTHONPATH": os.pathsep.join(sys.path)}
    run_python(__file__, inputs, outputs, env=environment)
    used: str
    results: list[list[Tensor]]
    used, results = torch.load(outputs)
    assert used == capability
    return results


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "inputs.pt"
    torch.save((make_boxes(), make_images()), path)
    return path


@pytest.fixture(scope="module")
def baseline(inputs: Path) -> list[list[Tensor]]:
    return run_with("DEFAULT", inputs)


@pytest.mark.parametrize("capability", [pytest.param("AVX2", marks=pytest.mark.exhaustive), "AVX512"])
def test_every_instruction_set_gives_the_same_bits(
    capability: str, inputs: Path, baseline: list[list[Tensor]]
) -> None:
    available = torch.backends.cpu.get_cpu_capability()
    if available not in CAPABILITIES or CAPABILITIES.index(capability) > CAPABILITIES.index(available):
        pytest.skip(f"needs a CPU with {capability}, this one offers torch {available}")
    wide = run_with(capability, inputs)
    for case, (expected, results) in enumerate(zip(baseline, wide, strict=True)):
        for index, (theirs, ours) in enumerate(zip(expected, results, strict=True)):
            where = f"case {case}, output {index}"
            assert torch.equal(ours.isnan(), theirs.isnan()), where
            assert torch.equal(bits(ours), bits(theirs)), where


def bits(numbers: Tensor) -> Tensor:
    """Return the stored bits, so that -0 is not 0; every NaN counts as the same."""
    if not numbers.is_floating_point():
        return numbers
    cleaned = numbers.nan_to_num(0.0, float("inf"), float("-inf")).flatten()
    return cleaned.view(torch.uint8)


if __name__ == "__main__":
    torch.save((torch.backends.cpu.get_cpu_capability(), results_of(Path(sys.argv[1]))), sys.argv[2])
