"""A loaded artifact: detection in images and files, and the loss."""

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lensbox.artifact.metadata import ArtifactMetadata, Reading
from lensbox.common.errors import InputError
from lensbox.common.fields import Orientation
from lensbox.common.tile_spec import Tiles, TileSpec, tile_spec
from lensbox.runtime.box_loss import BoxPairs, Losses, is_giou_loss, losses
from lensbox.runtime.captured_detect import CapturedDetect, Found, Thresholds
from lensbox.runtime.detection import (
    Detections,
    Fetched,
    FileDetections,
    batch_detections,
    check_labels,
    concatenate,
    detections,
)
from lensbox.runtime.device import DeviceTimer, tile_batch
from lensbox.runtime.gpu_float32 import gpu_float32
from lensbox.runtime.images.files import decode_batches, read_batches, read_coded, read_photo
from lensbox.runtime.images.gpu_jpeg import Decode, gpu_jpeg_decoder
from lensbox.runtime.images.photo import Photo, photo_of
from lensbox.runtime.self_test import SelfTestReport, run_self_test
from lensbox.runtime.tiles import cut_windows, merge_tiles, require_whole, tile_windows
from lensbox.runtime.torchscript import torchscript_call
from lensbox.runtime.transfer import to_device, to_host


class _Launched(NamedTuple):
    """Detections on the device, which may not be there yet. further: the other outputs by name."""

    boxes: Tensor
    scores: Tensor
    counts: Tensor
    further: dict[str, Tensor]
    timer: DeviceTimer | None


# Python's lock feeds no more: on a machine of 16 cores, 16 threads were slower than 8.
_MAX_THREADS = 8


class Artifact:
    """A loaded detector. Its methods may be called from several threads at once.

    On a GPU the methods compute in full float32, or with TF32 if the metadata's `precision` says so, whatever
    torch's switches say. The switches are restored after the last running call.

    module: has the methods in `docs/artifact.md`, as TorchScript or as `DetectOnlyMethods`. Call it inside of
    `torchscript_call`.
    on_letterbox: if set, called for each computed batch of photographs with the timer of its pre-processing.
        The callee may ask the timer for seconds later, when no request waits.
    """

    on_letterbox: Callable[[DeviceTimer], None] | None = None

    def __init__(self, module: Any, metadata: ArtifactMetadata, device: torch.device) -> None:
        self.module = module
        self.metadata = metadata
        self.device = device
        self._captured: CapturedDetect | None = None
        self._giou_loss: bool | None = None  # not looked at yet
        self._tf32 = metadata.precision is not None and metadata.precision.dtype == "tf32"
        self._further = (*(["labels"] if metadata.classes else []), *metadata.extras)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes by label; empty for a detector without labels."""
        return self.metadata.classes

    def read_photo(
        self, source: str | Path | bytes, orientation: Orientation | None = None, full_size: bool = False
    ) -> Photo:
        """Read an image file for this detector, at no larger scale than the detector needs.

        source: a path, or the bytes of a file. orientation: "exif" turns the photograph upright by its EXIF
        data, "stored" leaves the pixels as stored; None is the artifact's choice. full_size: decode every
        pixel, as tiles need them. Raises what `read_image` raises.
        """
        return read_photo(source, self.metadata.canvas, self.reading(orientation, full_size))

    def reading(self, orientation: Orientation | None = None, full_size: bool = False) -> Reading:
        """Return how image files are read for this detector. See `Reading.asked`."""
        return self.metadata.reading.asked(orientation, full_size)

    def detect_image(
        self,
        image: Tensor | Photo,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        tiles: Tiles | None = None,
    ) -> Detections:
        """Return the detections of one image of any size.

        image: uint8 [C, H, W] on any device, C = 1 (gray), 3 (RGB) or 4 (RGBA), or a result of `read_photo`.
        A threshold of None is the artifact's default. tiles: "auto" or a TileSpec looks for small things in
        overlapping tiles of a large photograph, which must be of full size. Raises ValueError for another
        dtype or shape and for thresholds outside 0..1, ArtifactError for a label that names no class.
        """
        thresholds = self._thresholds(score_threshold, iou_threshold)
        photo = photo_of(image, "image")
        if tiles is None:
            return self._detect_photos([photo], thresholds)[0]
        return self._detect_tiles(photo, thresholds, tile_spec(tiles))

    def detect_images(
        self,
        images: Sequence[Tensor | Photo],
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
    ) -> list[Detections]:
        """Return the detections of images of any sizes, computed in one batch, in the order of the images."""
        photos = [photo_of(image, f"images[{index}]") for index, image in enumerate(images)]
        return self._detect_photos(photos, self._thresholds(score_threshold, iou_threshold))

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

        files: as for `read_photo`; the iterable is consumed as needed. For a file that cannot be read the
        generator yields an InputError and goes on. Threads (None: one per CPU, at most 8) read ahead while
        the device computes; at most `2 * batch_size + max(batch_size, threads)` photographs are in memory.
        Closing the generator early leaves no threads. tiles: as for `detect_image`; files are then decoded
        at full size. decode: "cpu"; "gpu" for JPEG files that the GPU's hardware decodes to the same pixels,
        with two or three more batches in memory; "auto" for the GPU in batches of 256 or more, where it can.
        For tiles the CPU decodes. Raises ValueError for wrong options, DeviceError if the GPU cannot decode.
        """
        return _without_sizes(
            self.file_detections(
                files, batch_size, threads, score_threshold, iou_threshold, orientation, tiles, decode
            )
        )

    def file_detections(
        self,
        files: Iterable[str | Path | bytes],
        batch_size: int = 32,
        threads: int | None = None,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        orientation: Orientation | None = None,
        tiles: Tiles | None = None,
        decode: Decode = "auto",
    ) -> Generator[FileDetections | InputError, None, None]:
        """Yield what `detect_files` yields, with the size of each photograph."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, or None, got {threads}")
        thresholds = self._thresholds(score_threshold, iou_threshold)
        canvas, reading = self.metadata.canvas, self.reading(orientation, full_size=tiles is not None)
        spec = None if tiles is None else tile_spec(tiles)

        def read(file: str | Path | bytes) -> Photo:
            return read_photo(file, canvas, reading)

        threads = threads or min(_MAX_THREADS, os.cpu_count() or 1)
        decoder = None if spec else gpu_jpeg_decoder(self.device, canvas, reading, decode, batch_size)
        if decoder is None:
            batches = read_batches(files, read, batch_size, threads)
        else:
            coded = partial(read_coded, canvas=canvas, reading=reading, decoder=decoder)
            batches = decode_batches(read_batches(files, coded, batch_size, threads), decoder, read)
        return self._detect_batches(batches, thresholds, spec)

    def detect(
        self, images: Tensor, score_threshold: float | None = None, iou_threshold: float | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the detections of a batch of canvases.

        images: uint8 [B, c, h, w], as the metadata's `canvas` says, on any device. Returns, on the artifact's
        device, boxes, float32 [B, K, 4] in canvas pixels; scores, float32 [B, K]; counts, int [B]. Raises
        ValueError.
        """
        thresholds = self._thresholds(score_threshold, iou_threshold)
        with self._call():
            boxes, scores, counts, *_ = self._detect(images.to(self.device), thresholds)
            return boxes, scores, counts

    def detect_named(
        self, images: Tensor, score_threshold: float | None = None, iou_threshold: float | None = None
    ) -> dict[str, Tensor]:
        """Return the outputs of `detect` by name, with `labels` and further outputs if the detector has them.

        labels: int64 [B, K]; further outputs: [B, K, ...], points in canvas pixels. Raises ValueError.
        """
        thresholds = self._thresholds(score_threshold, iou_threshold)
        names = ("boxes", "scores", "counts", *self._further)
        with self._call():
            return dict(zip(names, self._detect(images.to(self.device), thresholds), strict=True))

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
        memory on the GPU. On a CPU it does nothing.
        Raises ValueError for batch sizes that are not whole numbers from 1.
        """
        sizes = list(batch_sizes)
        for size in sizes:
            if type(size) is not int or size < 1:
                raise ValueError(f"batch_sizes must be whole numbers from 1, got {size!r}")
        thresholds = self._thresholds(score_threshold, iou_threshold)
        if self.device.type != "cuda":
            return
        with self._call():
            image = torch.zeros(1, 1, 1, dtype=torch.uint8, device=self.device)
            canvases, _ = self.module.preprocess([image])
            if self._captured is None:
                self._captured = CapturedDetect(self._uncaptured, canvases.device)
            self._captured.capture(canvases[0], sizes, thresholds)

    def loss(self, predictions: Tensor, targets: Tensor) -> float:
        """Return the mean of 1 - GIoU over the slots that hold a target; a slot whose y2 is 0 is padding.

        predictions, targets: [..., 4] of the same shape, xyxy in the same unit, on any device. Raises
        ValueError for other shapes, and for a detector with a loss of its own whose file is not TorchScript.
        """
        if predictions.shape != targets.shape or predictions.dim() == 0 or predictions.shape[-1] != 4:
            raise ValueError(
                "predictions and targets must have the same shape [..., 4], "
                f"got {list(predictions.shape)} and {list(targets.shape)}"
            )
        self._check_loss()
        with self._call():
            return float(self.module.loss(predictions.to(self.device), targets.to(self.device)))

    def losses(self, pairs: BoxPairs, per_image: bool = False, gradient: bool = False) -> Losses:
        """Return the loss of the boxes of several images, which may have different numbers of boxes.

        per_image: return the loss of each image, too. gradient: return d loss / d predictions, too. Raises
        LossUnsupportedError, a ValueError, if the detector's own loss takes no weights or has no gradient,
        and ValueError as `loss` does.
        """
        self._check_loss()
        with self._call(), torch.inference_mode(False):
            return losses(
                self.module.loss, self.has_giou_loss, pairs.copied_to(self.device), per_image, gradient
            )

    @property
    def has_giou_loss(self) -> bool:
        """Return whether `loss` is Lensbox's GIoU loss; a detector may bring a loss of its own."""
        if self._giou_loss is None:
            if self.module.loss is None:
                return False
            with self._call():
                self._giou_loss = is_giou_loss(self.module.loss, self.device)
        return self._giou_loss

    def self_test(self) -> SelfTestReport:
        """Run the self-test that came with the artifact, on the artifact's device."""
        with self._call():
            return run_self_test(self.module, self.metadata.self_test, self.device)

    def _check_loss(self) -> None:
        if self.module.loss is None:
            raise ValueError(
                "loss must be asked of the detector's TorchScript artifact: it is the detector's own, and "
                "this file holds detect alone"
            )

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Around calls of the module."""
        with torchscript_call(), gpu_float32(self.device, self._tf32):
            yield

    def _thresholds(self, score_threshold: float | None, iou_threshold: float | None) -> Thresholds:
        """Return the given thresholds, or the defaults for None. Raises ValueError."""
        score = self.metadata.score_threshold if score_threshold is None else float(score_threshold)
        iou = self.metadata.iou_threshold if iou_threshold is None else float(iou_threshold)
        for name, value in (("score_threshold", score), ("iou_threshold", iou)):
            if not 0 <= value <= 1:  # true for NaN, too
                raise ValueError(f"{name} must be between 0 and 1, got {value:g}")
        return score, iou

    def _detect(self, canvases: Tensor, thresholds: Thresholds) -> Found:
        if self._captured is not None and (found := self._captured(canvases, thresholds)) is not None:
            return found
        return self._uncaptured(canvases, *thresholds)

    def _uncaptured(self, canvases: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        """Return boxes, scores, counts, and the further outputs in the order of `_further`."""
        if not self._further:
            boxes, scores, counts = self.module.detect(canvases, score_threshold, iou_threshold)
            return boxes, scores, counts
        found = self.module.detect_named(canvases, score_threshold, iou_threshold)
        return tuple(found[name] for name in ("boxes", "scores", "counts", *self._further))

    def _detect_photos(self, photos: Sequence[Photo], thresholds: Thresholds) -> list[Detections]:
        if not photos:
            return []
        tensors = [photo.pixels for photo in photos]
        has_windows = not all(photo.is_whole for photo in photos)
        if has_windows:
            tensors.append(torch.tensor([(*photo.window, photo.width, photo.height) for photo in photos]))
        with self._call():
            images = to_device(tensors, self.device)
            windows = images.pop() if has_windows else None
            return detections(self._fetch(self._launch(images, windows, thresholds)))

    def _detect_tiles(self, photo: Photo, thresholds: Thresholds, tiles: TileSpec) -> Detections:
        """Return the detections of a whole photograph in tiles. Raises InputError for too many tiles.

        The photograph is copied to the device once, and all batches are launched before one is waited for.
        """
        windows = tile_windows(photo.width, photo.height, self.metadata.canvas, tiles)
        require_whole(photo)
        if len(windows) == 1:
            return self._detect_photos([photo], thresholds)[0]
        rows = torch.from_numpy(np.array([(*window, photo.width, photo.height) for window in windows]))
        together = tile_batch(self.device, self.metadata.canvas)
        with self._call():
            pixels, rows = to_device([photo.pixels, rows], self.device)
            launched = []
            for start in range(0, len(windows), together):
                part = slice(start, start + together)
                launched.append(self._launch(cut_windows(pixels, windows[part]), rows[part], thresholds))
            fetched = [self._fetch(one) for one in launched]
        found = concatenate([batch_detections(one) for one in fetched])
        counts = [count for one in fetched for count in one.counts]
        return merge_tiles(found, counts, windows, photo.width, photo.height, thresholds[1])

    def _launch(self, images: list[Tensor], windows: Tensor | None, thresholds: Thresholds) -> _Launched:
        """Begin to detect in images on the device. A GPU is not waited for."""
        timer = None if self.on_letterbox is None else DeviceTimer(self.device)
        canvases, geometry = self.module.preprocess(images, windows)
        if timer is not None:
            timer.stop()
        boxes, scores, counts, *outputs = self._detect(canvases, thresholds)
        further = {
            name: self._restored(name, output, geometry)
            for name, output in zip(self._further, outputs, strict=True)
        }
        return _Launched(self.module.restore(boxes, geometry), scores, counts, further, timer)

    def _fetch(self, launched: _Launched) -> Fetched:
        """Wait for detections, and copy them to the CPU. Raises ArtifactError for a label without a class."""
        found = to_host(launched.boxes, launched.scores, launched.counts)
        if launched.timer is not None and self.on_letterbox is not None:
            self.on_letterbox(launched.timer)  # the device has long been past it
        further = {name: values.cpu().numpy() for name, values in launched.further.items()}
        if "labels" in further:
            check_labels(further["labels"], found[2], len(self.classes))
        return Fetched(*found, further)

    def _restored(self, name: str, output: Tensor, geometry: Tensor) -> Tensor:
        """Return a further output; points are converted to pixels of the photographs."""
        if name not in self.metadata.extras or self.metadata.extras[name].kind != "points":
            return output
        restored: Tensor = self.module.restore_points(output, geometry)
        return restored

    def _detect_batches(
        self,
        batches: Generator[list[Photo | InputError], None, None],
        thresholds: Thresholds,
        tiles: TileSpec | None,
    ) -> Generator[FileDetections | InputError, None, None]:
        with contextlib.closing(batches):
            for batch in batches:
                photos = [photo for photo in batch if isinstance(photo, Photo)]
                found = iter(self._detect_photos(photos, thresholds) if tiles is None else ())
                for photo in batch:
                    if isinstance(photo, InputError):
                        yield photo
                        continue
                    try:
                        one = next(found) if tiles is None else self._detect_tiles(photo, thresholds, tiles)
                    except InputError as error:  # too many tiles
                        yield error
                    else:
                        yield FileDetections(photo.width, photo.height, one)


def _without_sizes(
    files: Generator[FileDetections | InputError, None, None],
) -> Generator[Detections | InputError, None, None]:
    with contextlib.closing(files):
        for found in files:
            yield found.detections if isinstance(found, FileDetections) else found
