"""Box ops as a Python-free shared library; importing this package registers them as torch.ops.lensbox."""

from lensbox.ops._loader import BuildInfo, OpLibraryError, library_path, load, read_build_info

load()

from lensbox.ops.boxes import (  # noqa: E402
    PaddedDetections,
    giou,
    jagged_giou_loss,
    masked_giou_loss,
    masked_giou_loss_and_grad,
    padded_nms,
    pairwise_giou,
)
from lensbox.ops.images import DecodedFiles, FittedImages, decode_jpeg, fit, letterbox, resize  # noqa: E402
from lensbox.ops.packed_targets import PackedTargets, collate_packed  # noqa: E402
from lensbox.ops.torchvision_api import (  # noqa: E402
    batched_nms,
    box_iou,
    generalized_box_iou,
    generalized_box_iou_loss,
    nms,
)

__all__ = [
    "BuildInfo",
    "DecodedFiles",
    "FittedImages",
    "OpLibraryError",
    "PackedTargets",
    "PaddedDetections",
    "batched_nms",
    "box_iou",
    "collate_packed",
    "decode_jpeg",
    "fit",
    "generalized_box_iou",
    "generalized_box_iou_loss",
    "giou",
    "jagged_giou_loss",
    "letterbox",
    "library_path",
    "masked_giou_loss",
    "masked_giou_loss_and_grad",
    "nms",
    "padded_nms",
    "pairwise_giou",
    "read_build_info",
    "resize",
]
