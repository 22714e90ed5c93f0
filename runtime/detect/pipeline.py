"""The computation of a detector: fit images to canvases, detect, restore the boxes, copy them to the CPU."""

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lensbox.common.detections import TileSpec
from lensbox.common.errors import ArtifactError
from lensbox.runtime.detect.captured_detect import CapturedDetect, Outputs, Thresholds
from lensbox.runtime.detect.detection import Detections, as_tensors
from lensbox.runtime.detect.tiles import cut_windows, merge_tiles, require_whole, tile_batch, tile_windows
from lensbox.runtime.detect.transfer import HostCopy, packed, to_device, to_host, unpacked
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.runtime.images.photo import Photo
from lensbox.runtime.torchscript import torchscript_call


class EnqueuedWork:
    """The last work on each stream of a device. Does nothing on a CPU. Thread-safe.

    A detector's memory may be freed only after this work: torch keeps freed memory for the stream that
    allocated it, and its next owner would overwrite what another stream still reads.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._ends: dict[int, torch.cuda.Event] = {}

    def note(self) -> None:
        """Note what the current stream has been given until now.

        Work that is captured is not noted: who owns the graph keeps the artifact.
        """
        if self._device.type != "cuda":
            return
        with torch.cuda.device(self._device):
            if torch.cuda.is_current_stream_capturing():
                return
            stream = torch.cuda.current_stream()
            with self._lock:
                self._ends.setdefault(stream.cuda_stream, torch.cuda.Event()).record(stream)

    def wait(self) -> None:
        """Wait until the GPU has done the work. A failed GPU, and a forked child's, do no work."""
        for end in self._ends.values():
            with contextlib.suppress(RuntimeError):
                end.synchronize()


class Fitted(NamedTuple):
    """Photographs on canvases, on the device. geometry: float32 [B, 6]. sizes: their widths and heights."""

    canvases: Tensor
    geometry: Tensor
    sizes: list[tuple[int, int]]


class Launched(NamedTuple):
    """The outputs for a batch of photographs, on their way to the CPU."""

    outputs: HostCopy
    sizes: list[tuple[int, int]]


class Pipeline:
    """The calls of a detector's module on its device. Thread-safe.

    module: has the methods of an artifact. Weights and graphs are freed when no
    stream of the GPU works with them.
    """

    def __init__(self, module: Any, metadata: ArtifactMetadata, device: torch.device) -> None:
        self.module = module
        self._metadata = metadata
        self._device = device
        self._captured: CapturedDetect | None = None
        self.outputs = metadata.outputs
        self._further = self.outputs[3:]
        self._points = metadata.points
        self._process = os.getpid()
        self._work = EnqueuedWork(device)
        # Called before Python drops the attributes above, and so the memory.
        weakref.finalize(self, self._work.wait)

    @contextlib.contextmanager
    def calls(self) -> Iterator[None]:
        """Call the module within this context: no gradients, autocast or compilation.

        Raise RuntimeError in a forked child: it lacks the threads of torch's pools, and would wait for them.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                f"the artifact must be used in the process that loaded it, {self._process}, got its forked "
                f"child {os.getpid()}: load it in the child, or start the child with the method 'spawn'"
            )
        with torchscript_call():
            try:
                yield
            finally:
                self._work.note()

    def detect(self, canvases: Tensor, thresholds: Thresholds) -> Outputs:
        """Return the tensors named `outputs` for canvases on the device, within `calls`."""
        if self._captured is not None and (found := self._captured(canvases, thresholds)) is not None:
            return found
        return self._uncaptured(canvases, *thresholds)

    def capture(self, sizes: Iterable[int], thresholds: Thresholds) -> None:
        """Capture CUDA graphs of `detect` for these batch sizes."""
        with self.calls():
            image = torch.zeros(1, 1, 1, dtype=torch.uint8, device=self._device)
            canvases, geometry = self.module.preprocess([image])
            if self._captured is None:
                self._captured = CapturedDetect(self._uncaptured, self._of_photos, canvases.device)
            self._captured.capture(canvases[0], geometry[0], sizes, thresholds)

    def detect_photos(
        self, photos: Sequence[Photo], thresholds: Thresholds
    ) -> list[Detections[NDArray[Any]]]:
        """Return the detections of each photograph, computed in one batch. Raise ArtifactError."""
        return self.fetch(self.launch(self.fit(photos), thresholds))

    def fit(self, photos: Sequence[Photo]) -> Fitted:
        """Fit photographs to canvases, without waiting for a GPU. Any thread may call it."""
        if not photos:
            return Fitted(torch.empty(0), torch.empty(0), [])
        tensors = [photo.pixels for photo in photos]
        has_windows = not all(photo.is_whole for photo in photos)
        if has_windows:
            rows = [(*photo.window, photo.width, photo.height) for photo in photos]
            tensors.append(torch.tensor(rows, dtype=torch.float32, device="cpu"))
        with self.calls():
            images = to_device(tensors, self._device)
            windows = images.pop() if has_windows else None
            canvases, geometry = self.module.preprocess(images, windows)
        return Fitted(canvases, geometry, [(photo.width, photo.height) for photo in photos])

    def launch(self, fitted: Fitted, thresholds: Thresholds) -> Launched:
        """Begin to detect in a batch. A GPU then computes, a CPU has computed."""
        if not fitted.sizes:
            return Launched(HostCopy((), None), [])
        with self.calls():
            return Launched(self._launch(fitted.canvases, fitted.geometry, thresholds), fitted.sizes)

    def detect_tiles(self, photo: Photo, thresholds: Thresholds, tiles: TileSpec) -> Detections:
        """Return the detections of a whole photograph in tiles. Raise InputError for too many tiles.

        The photograph is copied to the device once. All batches are launched before the first one is fetched.
        """
        windows = tile_windows(photo.width, photo.height, self._metadata.canvas, tiles)
        require_whole(photo)
        if len(windows) == 1:
            return as_tensors(self.detect_photos([photo], thresholds)[0])
        rows = torch.from_numpy(np.array([(*window, photo.width, photo.height) for window in windows]))
        together = tile_batch(self._device, self._metadata.canvas)
        with self.calls():
            pixels, rows = to_device([photo.pixels, rows], self._device)
            launched = []
            for start in range(0, len(windows), together):
                part = slice(start, start + together)
                canvases, geometry = self.module.preprocess(cut_windows(pixels, windows[part]), rows[part])
                outputs = self._launch(canvases, geometry, thresholds)
                launched.append(Launched(outputs, [(0, 0)] * len(windows[part])))
        found = [one for batch in launched for one in self.fetch(batch)]
        return as_tensors(merge_tiles(found, windows, photo.width, photo.height, thresholds[1]))

    def _uncaptured(self, canvases: Tensor, score_threshold: float, iou_threshold: float) -> Outputs:
        found = self.module.detect(canvases, score_threshold, iou_threshold)
        return tuple(found[name] for name in self.outputs)

    def _launch(self, canvases: Tensor, geometry: Tensor, thresholds: Thresholds) -> HostCopy:
        """Start `_of_photos` and the copies of its outputs, without waiting for a GPU."""
        captured = self._captured and self._captured.of_photos(canvases, geometry, thresholds)
        return captured or to_host(self._of_photos(self._uncaptured(canvases, *thresholds), geometry))

    def _of_photos(self, found: Outputs, geometry: Tensor) -> Outputs:
        """Return outputs in pixels of the photographs; boxes, scores and counts as one tensor (`packed`)."""
        boxes, scores, counts, *further = found
        restored = (
            self.module.restore_points(output, geometry) if name in self._points else output
            for name, output in zip(self._further, further, strict=True)
        )
        return packed(self.module.restore(boxes, geometry), scores, counts), *restored

    def fetch(self, launched: Launched) -> list[Detections[NDArray[Any]]]:
        """Wait for a batch; return the detections of each photograph as views of the batch, on the CPU.

        Raise ArtifactError for a label without a class.
        """
        if not launched.sizes:
            return []
        first, *others = launched.outputs.wait()
        boxes, scores, counts = unpacked(first)
        further = dict(zip(self._further, others, strict=True))
        if "labels" in further:
            given, classes = further["labels"], len(self._metadata.classes)
            used = given[np.arange(given.shape[1]) < np.array(counts)[:, None]]
            if (wrong := used[(used < 0) | (used >= classes)]).size:
                rule = f"labels from 0 to {classes - 1}, as it has {classes} classes"
                raise ArtifactError(f"the detector must return {rule}, got {wrong[0]}")
        found = []
        for image, (count, size) in enumerate(zip(counts, launched.sizes, strict=True)):
            extras = {name: values[image, :count] for name, values in further.items()}
            labels = extras.pop("labels", None)
            found.append(Detections(boxes[image, :count], scores[image, :count], labels, extras, *size))
        return found
