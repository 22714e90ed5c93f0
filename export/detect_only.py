"""What the files have in common that hold `detect` alone: ONNX files, AOTInductor packages, programs."""

import dataclasses
from collections.abc import Collection, Sequence

import torch

from lensbox.artifact.metadata import ArtifactMetadata, Compiled
from lensbox.common.errors import ArtifactError
from lensbox.export.own_methods import LETTERBOX_METHODS, own_methods
from lensbox.model import Detector


def methods_left_behind(
    detector: Detector, kind: str, error: type[ArtifactError] = ArtifactError
) -> list[str]:
    """The detector's own methods, which such a file cannot bring along: at most `loss`.

    kind: of file, as "an ONNX file". Raises `error` for the others, which detections need.
    """
    own = own_methods(detector)
    if letterbox := [method for method in own if method in LETTERBOX_METHODS]:
        raise error(
            f"the detector's own {' and '.join(letterbox)} cannot be exported: {kind} holds detect alone, "
            "and its runtimes fit and restore as Lensbox does (lensbox::letterbox)"
        )
    return own


def detect_only_metadata(
    metadata: ArtifactMetadata,
    left_behind: Collection[str],
    ops: Sequence[str] = (),
    compiled: Compiled | None = None,
) -> ArtifactMetadata:
    """The metadata of such a file, from those of any file of the detector.

    ops: schemas of the operators that it needs. compiled: for what machine it is, if it holds machine code.
    """
    return dataclasses.replace(
        metadata,
        ops=tuple(ops),
        methods=tuple(method for method in metadata.methods if method not in left_behind),
        libraries=(),
        parity=(),
        compiled=compiled,
    )


def needed_ops(called: Collection[str], left_behind: Collection[str]) -> tuple[str, ...]:
    """Schemas of the operators that the file calls, and of those that the runtimes call beside it."""
    beside = [torch.ops.lensbox.letterbox.default]
    if "loss" not in left_behind:
        beside.append(torch.ops.lensbox.masked_giou_loss.default)
    return tuple(sorted({*called, *(str(op._schema) for op in beside)}))
