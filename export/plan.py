"""The plan of an export, which all formats share, and the result of a format's `build`."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lensbox.common.errors import ArtifactError, InputError
from lensbox.export.detector.copies import plain_copy
from lensbox.export.detector.wrapper import FixedBatches
from lensbox.export.options import ExportOptions
from lensbox.export.verify.pictures import Fitted, drawn
from lensbox.export.verify.reference import Reference
from lensbox.export.verify.self_test import build_self_test
from lensbox.model import Detector, faults_of
from lensbox.model.weights_file import non_finite_weights
from lensbox.runtime.device import choose_device, set_gpu_float32
from lensbox.runtime.file.metadata import ArtifactMetadata, Compiled
from lensbox.runtime.file.self_test import SelfTest
from lensbox.runtime.images.files import read_image

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Built:
    """The result of a format's `build`.

    pack: returns the sealed content of the file for its metadata. omitted: methods of the detector that
    the file lacks. ops: schemas of needed operators. devices: types of usable devices. compiled: the target
    machine, None for any. batch: the fixed batch size of the file, None for any. otherwise: builds the file
    in another way, if this file does not run or does not find what the detector finds.
    """

    pack: Callable[[ArtifactMetadata], bytes]
    omitted: Collection[str] = ()
    ops: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    compiled: Compiled | None = None
    batch: int | None = None
    otherwise: "Callable[[], Built] | None" = None


class ExportPlan:
    """A checked detector and the values that the formats share, each computed once on demand.

    detector: a copy on the CPU in eval mode, independent of the caller's device and training mode.
    network: the detector without cutting and filling of batches. batch: the fixed batch size of a file with
    one graph; None for any. thresholds: the default score and IoU thresholds of the files. pictures: uint8
    [C, H, W], the user's.
    """

    def __init__(self, detector: Detector, options: ExportOptions) -> None:
        """Check and copy the detector.

        Raise ArtifactError for a detector that breaks the protocol, InputError for weights that are not
        finite and pictures that cannot be read, and DeviceError for a device that cannot be used.
        """
        if isinstance(detector, nn.Module) and (reason := non_finite_weights(detector)) is not None:
            raise InputError(f"the detector cannot be exported: {reason}")
        self.options, self.device = options, choose_device(str(options.device))
        self.pictures = [_picture(path) for path in options.pictures]
        if self.device.type == "cuda":  # to measure and to compile as the files will compute
            set_gpu_float32("an export", options.dtype == "tf32")
        module: Any = FixedBatches(detector, options.batches) if options.batches else detector
        if isinstance(module, nn.Module):
            module = plain_copy(module).cpu()
        if faults := faults_of(module):
            raise ArtifactError("\n  ".join(["the detector cannot be exported:", *faults]))
        self.detector: Detector = module
        self.network: Detector = module.detector if options.batches else module
        self.batch = next(iter(options.batches), None)
        specification = self.detector.specification
        score, iou = options.score_threshold, options.iou_threshold
        self.thresholds = (
            specification.score_threshold if score is None else score,
            specification.iou_threshold if iou is None else iou,
        )
        self.outputs = specification.outputs

    @cached_property
    def drawn(self) -> Fitted:
        """Return the drawn pictures and their canvases."""
        return drawn(self.detector)

    @cached_property
    def reference(self) -> Reference:
        """Return the detections of the detector in PyTorch."""
        _logger.info("computing reference detections with PyTorch")
        score, iou = self.thresholds
        # A lower threshold compares more detections, but reduced precision moves low scores too far.
        least = score / 10 if self.options.dtype == "float32" else score
        return Reference(self.detector, (least, iou), self.pictures, self.drawn)

    @cached_property
    def self_test(self) -> SelfTest:
        """Return the self-test with the answers in float32."""
        _logger.info("choosing a self-test")
        pictures = self.pictures if self.options.self_test_from_pictures else ()
        return build_self_test(self.detector, self.options.dtype, self.drawn, pictures)


def _picture(path: Path) -> Tensor:
    try:
        return read_image(path)
    except FileNotFoundError as error:
        raise InputError(f"--pictures must name an image file, got {path}") from error
