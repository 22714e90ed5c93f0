"""A loaded artifact: detection in images and files, and the loss."""

from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

from lensbox.common.detections import Tiles, check_thresholds, tile_spec
from lensbox.common.errors import InputError
from lensbox.common.fields import Orientation
from lensbox.common.pictures import ColorOrder, ImageFile, Picture, require_many, require_rgb
from lensbox.runtime.detect.captured_detect import Thresholds
from lensbox.runtime.detect.detect_files import detect_batches, photo_batches
from lensbox.runtime.detect.detection import Detections, as_tensors
from lensbox.runtime.detect.pipeline import Fitted, Launched, Pipeline
from lensbox.runtime.detect.self_test import SelfTestReport, run_self_test
from lensbox.runtime.file.metadata import ArtifactMetadata, Reading
from lensbox.runtime.images.files import read_photo
from lensbox.runtime.images.gpu_jpeg import Decode, decodes_on_gpu
from lensbox.runtime.images.photo import Photo, is_in_memory, photo_of

Image = Tensor | Photo | Picture | ImageFile


class Artifact:
    """A loaded detector. Thread-safe.

    On a GPU the methods compute in full float32, or in TF32 if the metadata's `precision` says so:
    `load_artifact` sets torch's switches for the whole process. An artifact that nobody uses any more is
    freed once the work that it gave to streams of the GPU is done.

    module: has the methods in `docs/artifact.md`, as TorchScript or as `DetectOnlyMethods`. For a service
    `lensbox.serve.loading` sets largest_batch, images per call, and decodes_jpeg: whether the device does.
    """

    largest_batch = 1
    decodes_jpeg = False

    def __init__(self, module: Any, metadata: ArtifactMetadata, device: torch.device) -> None:
        self.module = module
        self.metadata = metadata
        self.device = device
        self._pipeline = Pipeline(module, metadata, device)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes by label; empty for a detector without labels."""
        return self.metadata.classes

    def read_photo(
        self, source: ImageFile, orientation: Orientation | None = None, full_size: bool = False
    ) -> Photo:
        """Read an image file for this detector, at no larger scale than the detector needs.

        source: a path, the bytes of a file, or a file open in binary mode. orientation: "exif" turns the
        photograph upright by its EXIF data, "stored" leaves the pixels as stored; None is the artifact's
        choice. full_size: decode every pixel, which tiles need. Raise what `read_image` raises.
        """
        return read_photo(source, self.metadata.canvas, self.reading(orientation, full_size))

    def reading(self, orientation: Orientation | None = None, full_size: bool = False) -> Reading:
        """Return how image files are read for this detector. See `Reading.asked`."""
        return self.metadata.reading.asked(orientation, full_size)

    def detect_image(
        self,
        image: Image,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        tiles: Tiles | None = None,
        *,
        color_order: ColorOrder = "RGB",
    ) -> Detections:
        """Return the detections of one image of any size.

        image: a tensor, uint8 [C, H, W] on any device, C = 1 (gray), 3 (RGB) or 4 (RGBA); an array, uint8
        [H, W] or [H, W, C]; a Pillow image, whose EXIF orientation is ignored; a result of `read_photo`; or
        a source of `read_photo`. color_order: "BGR" for tensors and arrays of OpenCV. A threshold of None is
        the artifact's default. tiles: "auto" or a TileSpec detects small objects in overlapping tiles of a
        large photograph at full size. Raise ValueError for another dtype or shape and for thresholds outside
        0..1, ArtifactError for a label that names no class, and what `read_photo` raises.
        """
        thresholds = self._thresholds(score_threshold, iou_threshold)
        photo = self._photo(image, "image", color_order, full_size=tiles is not None)
        if tiles is None:
            return as_tensors(self._pipeline.detect_photos([photo], thresholds)[0])
        return self._pipeline.detect_tiles(photo, thresholds, tile_spec(tiles))

    def detect_images(
        self,
        images: Sequence[Image],
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        *,
        color_order: ColorOrder = "RGB",
    ) -> list[Detections]:
        """Return the detections of images of any sizes, computed in one batch, in the order of the images.

        Arguments and errors: see `detect_image`.
        """
        require_many(images, "images")
        photos = [self._photo(image, f"images[{index}]", color_order) for index, image in enumerate(images)]
        return list(map(as_tensors, self.fetch(self.launch(photos, score_threshold, iou_threshold))))

    def fit(self, photos: Sequence[Photo]) -> Fitted:
        """Fit photographs to canvases, for `launch`, without waiting for a GPU. Any thread may call it.

        photos: results of `read_photo` or `Photo.of`, which are not checked again.
        """
        return self._pipeline.fit(photos)

    def launch(
        self,
        photos: Sequence[Photo] | Fitted,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
    ) -> Launched:
        """Begin to detect, without waiting for a GPU. photos: see `fit`, or its result. Pass the result to
        `fetch`."""
        fitted = photos if isinstance(photos, Fitted) else self.fit(photos)
        return self._pipeline.launch(fitted, self._thresholds(score_threshold, iou_threshold))

    def fetch(self, launched: Launched) -> list[Detections[NDArray[Any]]]:
        """Wait for the detections that `launch` has begun; they share the memory of the batch."""
        return self._pipeline.fetch(launched)

    def detect_files(
        self,
        files: Iterable[str | Path | bytes],
        batch_size: int = 32,
        threads: int | None = None,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        orientation: Orientation | None = None,
        tiles: Tiles | None = None,
        decode: Decode = "auto",
    ) -> Generator[Detections | InputError, None, None]:
        """Yield the detections of many image files, in their order.

        files: paths or bytes of files; the iterable is consumed as needed. For a file that cannot be read,
        the generator yields an InputError and goes on. threads: read ahead while the device computes; None:
        one per CPU, at most 8, or 2 if the GPU decodes. At most `2 * batch_size + max(batch_size, threads)`
        photographs are in memory. Closing the generator early leaves no threads. tiles: as for
        `detect_image`; files are then decoded at full size. decode: "cpu"; "gpu" for JPEG files that the
        GPU's hardware decodes to the same pixels, with two or three more batches in memory; "auto" for the
        GPU in batches of 16 or more, where it can. For tiles the CPU decodes. Raise ValueError for wrong
        options, TypeError for one path instead of many, DeviceError if the GPU cannot decode.
        """
        require_many(files, "files")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, or None, got {threads}")
        thresholds = self._thresholds(score_threshold, iou_threshold)
        canvas, reading = self.metadata.canvas, self.reading(orientation, full_size=tiles is not None)
        spec = None if tiles is None else tile_spec(tiles)
        gpu = self.device if spec is None and decodes_on_gpu(self.device, decode, batch_size) else None
        batches = photo_batches(files, canvas, reading, gpu, batch_size, threads)
        return detect_batches(self._pipeline, batches, thresholds, spec)

    def detect(
        self, images: Tensor, score_threshold: float | None = None, iou_threshold: float | None = None
    ) -> dict[str, Tensor]:
        """Return the outputs for a batch of canvases, by name, on the artifact's device.

        images: uint8 [B, c, h, w], as the metadata's `canvas` says, on any device. Returns boxes, float32
        [B, K, 4] in canvas pixels; scores, float32 [B, K]; counts, int [B]; labels, int64 [B, K], if there
        are classes; further outputs, [B, K, ...], points in canvas pixels. Raise ValueError.
        """
        thresholds = self._thresholds(score_threshold, iou_threshold)
        with self._pipeline.calls():
            found = self._pipeline.detect(images.to(self.device), thresholds)
            return dict(zip(self._pipeline.outputs, found, strict=True))

    def capture(
        self,
        batch_sizes: Iterable[int],
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
    ) -> None:
        """Capture CUDA graphs of `detect` for these batch sizes: a batch is then one launch, not a hundred.

        Later calls use the graphs for batches of these sizes, and pad smaller batches to the next size.
        Larger batches run without a graph. Thresholds are part of a graph (None: the artifact's defaults):
        calls with other thresholds run without one. Call it again for more sizes and thresholds; each takes
        memory on the GPU. On a CPU it does nothing. Raise ValueError unless batch sizes are integers from 1.
        """
        sizes = list(batch_sizes)
        for size in sizes:
            if type(size) is not int or size < 1:
                raise ValueError(f"batch_sizes must be whole numbers from 1, got {size!r}")
        thresholds = self._thresholds(score_threshold, iou_threshold)
        if self.device.type == "cuda":
            self._pipeline.capture(sizes, thresholds)

    def loss(self, predictions: Tensor, targets: Tensor) -> float:
        """Return the mean of 1 - GIoU over the slots that hold a target; a slot whose y2 is 0 is padding.

        predictions, targets: [..., 4] of the same shape, xyxy in the same unit, on any device. Raise
        ValueError for other shapes, and for a detector's own loss in a file that is not TorchScript.
        """
        self._check_loss(predictions, targets)
        with self._pipeline.calls():
            return float(self.module.loss(predictions.to(self.device), targets.to(self.device)))

    def loss_and_gradient(self, predictions: Tensor, targets: Tensor) -> tuple[float, Tensor | None]:
        """Return `loss` and d loss / d predictions, on the CPU; None if the detector's own loss has none.

        Arguments and errors: see `loss`.
        """
        self._check_loss(predictions, targets)
        with self._pipeline.calls(), torch.inference_mode(False), torch.enable_grad():
            # Copies, because autograd refuses tensors of inference mode.
            leaf, fixed = (boxes.detach().to(self.device, copy=True) for boxes in (predictions, targets))
            value = self.module.loss(leaf.requires_grad_(), fixed)
            gradient = torch.autograd.grad(value, leaf)[0].cpu() if value.requires_grad else None
        return float(value.detach()), gradient

    def self_test(self) -> SelfTestReport:
        """Run the self-test that came with the artifact, on the artifact's device."""
        with self._pipeline.calls():
            return run_self_test(self.module, self.metadata.self_test, self.device, self.metadata.points)

    def _photo(self, image: Image, name: str, color_order: ColorOrder, full_size: bool = False) -> Photo:
        if is_in_memory(image):
            return photo_of(cast(Any, image), name, color_order)
        require_rgb(name, color_order)
        return self.read_photo(cast(ImageFile, image), full_size=full_size)

    def _check_loss(self, predictions: Tensor, targets: Tensor) -> None:
        if predictions.shape != targets.shape or predictions.dim() == 0 or predictions.shape[-1] != 4:
            raise ValueError(
                "predictions and targets must have the same shape [..., 4], "
                f"got {list(predictions.shape)} and {list(targets.shape)}"
            )
        if self.module.loss is None:
            raise ValueError(
                "loss must be computed with the detector's TorchScript artifact: the detector has its own "
                "loss, and this file holds only detect"
            )

    def _thresholds(self, score_threshold: float | None, iou_threshold: float | None) -> Thresholds:
        """Return the given thresholds, or the defaults for None. Raise ValueError."""
        score, iou = self.metadata.thresholds
        score = score if score_threshold is None else float(score_threshold)
        iou = iou if iou_threshold is None else float(iou_threshold)
        check_thresholds(score_threshold=score, iou_threshold=iou)
        return score, iou
