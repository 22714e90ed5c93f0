"""Valid arguments of the functions of the runtimes and of JPEG files, which are no ops of tensors."""

from collections.abc import Callable
from typing import Any

import torch
from jpeg_files import BASELINE, RESTARTED, TALL
from op_samples import Arguments
from torch import Tensor


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
