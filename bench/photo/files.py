"""Time the way from an image file to boxes: Lensbox's steps, the alternatives, and a stream of files."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
from torch import Tensor

from lensbox.artifact.metadata import Canvas
from lensbox.bench.photo import check, reference
from lensbox.bench.photo.photographs import Photograph, small_photographs
from lensbox.bench.runner import Case, MakeRun, Measure, UnavailableError, Way, WrongAnswerError, always
from lensbox.common.decode import Decode
from lensbox.common.errors import DeviceError, InputError
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection import Detections
from lensbox.runtime.torchscript import torchscript_call
from lensbox.runtime.transfer import to_device

ToBoxes = Callable[[bytes], Detections]

LENSBOX, PILLOW, PILLOW_DRAFT = "lensbox", "Pillow", "Pillow, draft"
OPENCV, OPENCV_REDUCED = "OpenCV", "OpenCV, reduced"
STREAM_SIDE = 512
_STREAM_BATCHES = (32, 128)
_GPU_DECODING_BATCHES = (128, 512)
_DISTINCT = 64  # files, which come again and again
_CHECKED = 8


def to_boxes_case(artifact: Artifact, photograph: Photograph, threads: int) -> Case:
    """Compare the ways from a file in memory to boxes."""
    makers: dict[str, Callable[[], ToBoxes]] = {
        LENSBOX: lambda: partial(_lensbox, artifact),
        PILLOW: lambda: _with_our_network(artifact, partial(_pillow_canvas, artifact.metadata.canvas)),
        PILLOW_DRAFT: lambda: _with_our_network(artifact, partial(_draft_canvas, artifact.metadata.canvas)),
        OPENCV: lambda: _opencv(artifact, threads, reduced=False),
        OPENCV_REDUCED: lambda: _opencv(artifact, threads, reduced=True),
    }

    def prepare(name: str) -> MakeRun:
        to_boxes = makers[name]()
        found, expected = to_boxes(photograph.file), check.expected_detections(photograph.file, artifact)
        if name == LENSBOX:
            canvas = artifact.metadata.canvas
            pixels = max(photograph.width / canvas.width, photograph.height / canvas.height)
            check.require_equal_detections(found, expected, artifact, pixels)
        else:
            check.require_same_faces(found, expected)
        return always(partial(to_boxes, photograph.file))

    ways = [Way(name, partial(prepare, name), _measures(artifact), own=name == LENSBOX) for name in makers]
    return Case(f"{photograph.name} to boxes", ways, artifact.device.type, threads, cpu_time=True)


def steps_case(artifact: Artifact, photograph: Photograph, threads: int) -> Case:
    """Time Lensbox's steps one by one. Their canvas must be the reference's to the byte."""
    steps = SimpleNamespace()

    def prepare(name: str) -> MakeRun:
        if not vars(steps):
            steps.photo = artifact.read_photo(photograph.file)
            steps.canvases, steps.geometry = _letterbox(artifact, steps.photo)
            expected = check.expected_canvas(photograph.file, artifact.metadata.canvas)
            check.require_same_bytes("canvas", steps.canvases, expected)
            steps.found = artifact.detect(steps.canvases)
        calls: dict[str, Callable[[], object]] = {
            "decode": partial(artifact.read_photo, photograph.file),
            "letterbox": partial(_letterbox, artifact, steps.photo),
            "detect": partial(artifact.detect, steps.canvases),
            "restore": partial(_restore, artifact, steps.found, steps.geometry),
        }
        return always(calls[name])

    names = ("decode", "letterbox", "detect", "restore")
    ways = [Way(name, partial(prepare, name), _measures(artifact), own=True) for name in names]
    return Case(f"{photograph.name}, steps of Lensbox", ways, artifact.device.type, threads, cpu_time=True)


def stream_case(artifact: Artifact, load: Callable[[], Artifact], count: int, threads: int) -> Case:
    """Send `count` JPEG files in memory through `detect_files`, whose threads decode beside the device.

    load: loads the artifact once more, to be captured. Timed by the wall clock.
    """
    distinct = small_photographs(STREAM_SIDE, min(_DISTINCT, count))
    files = [distinct[index % len(distinct)] for index in range(count)]

    def prepare(batch_size: int, capture: bool, decode: Decode) -> MakeRun:
        used = artifact
        if capture:
            used = load()
            used.capture([batch_size])
        try:
            _check_stream(used, distinct[:_CHECKED], batch_size, decode)
        except DeviceError as error:  # no decoder in the GPU's hardware, or no nvJPEG
            raise UnavailableError(str(error)) from error
        return always(partial(_detect_files, used, files, batch_size, decode))

    def way(batch_size: int, capture: bool, decode: Decode) -> Way:
        kind = (", captured" if capture else "") + (", decoded by the GPU" if decode == "gpu" else "")
        make = partial(prepare, batch_size, capture, decode)
        return Way(f"{LENSBOX}{kind}, batches of {batch_size}", make, ("complete",), images=count, own=True)

    is_gpu = artifact.device.type == "cuda"
    ways = [
        way(size, capture, "cpu")
        for capture in ((False, True) if is_gpu else (False,))
        for size in _STREAM_BATCHES
    ]
    if is_gpu:
        ways += [way(size, True, "gpu") for size in _GPU_DECODING_BATCHES]
    title = f"{count} JPEG files {STREAM_SIDE} x {STREAM_SIDE} from memory, in a stream"
    return Case(title, ways, artifact.device.type, threads)


def opencv_canvas(cv2: Any, gray: Any, canvas: Canvas) -> Tensor:
    """Fit uint8 [height, width] to [1, canvas.height, canvas.width], by the filter that averages areas."""
    height, width = gray.shape
    place = reference.fit(width, height, canvas)
    whole = np.zeros((canvas.height, canvas.width), np.uint8)
    small = cv2.resize(gray, (place.width, place.height), interpolation=cv2.INTER_AREA)
    whole[place.top : place.top + place.height, place.left : place.left + place.width] = small
    return torch.from_numpy(whole)[None]


def load_opencv(threads: int) -> Any:
    """Return the module `cv2`, which then computes with so many threads. Raises UnavailableError."""
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise UnavailableError("the Python package 'opencv-python-headless' is not installed") from error
    cv2.setNumThreads(threads)
    return cv2


def _measures(artifact: Artifact) -> tuple[Measure, ...]:
    return ("complete",) if artifact.device.type == "cuda" else ("call",)


def _lensbox(artifact: Artifact, file: bytes) -> Detections:
    return artifact.detect_image(artifact.read_photo(file))


def _letterbox(artifact: Artifact, photo: Any) -> tuple[Tensor, Tensor]:
    windows = torch.tensor([(*photo.window, photo.width, photo.height)])
    with torchscript_call():
        pixels, windows = to_device([photo.pixels, windows], artifact.device)
        canvases, geometry = artifact.module.preprocess([pixels], windows)
        return canvases, geometry


def _restore(artifact: Artifact, found: tuple[Tensor, Tensor, Tensor], geometry: Tensor) -> Detections:
    boxes, scores, counts = found
    count = int(counts[0])
    with torchscript_call():
        restored = artifact.module.restore(boxes, geometry)
    return Detections(restored[0, :count].cpu(), scores[0, :count].cpu())


def _with_our_network(artifact: Artifact, canvas_of: Callable[[bytes], Tensor]) -> ToBoxes:
    """Return a function that detects on the canvases of `canvas_of`, uint8 [1, H, W] on the CPU."""
    return lambda file: check.detections_on(canvas_of(file)[None], file, artifact)


def _pillow_canvas(canvas: Canvas, file: bytes) -> Tensor:
    return reference.canvas_of(PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(file))), canvas)


def _draft_canvas(canvas: Canvas, file: bytes) -> Tensor:
    """Decode gray levels alone, at a scale that leaves twice the sides that the canvas needs."""
    image = PIL.Image.open(io.BytesIO(file))
    place = reference.fit(*image.size, canvas)
    image.draft("L", (2 * place.width, 2 * place.height))
    return reference.canvas_of(PIL.ImageOps.exif_transpose(image), canvas)


def _opencv(artifact: Artifact, threads: int, reduced: bool) -> ToBoxes:
    """Decode gray levels alone. reduced: at a quarter of the sides, whatever the size."""
    cv2 = load_opencv(threads)
    mode = cv2.IMREAD_REDUCED_GRAYSCALE_4 if reduced else cv2.IMREAD_GRAYSCALE

    def canvas_of(file: bytes) -> Tensor:
        gray = cv2.imdecode(np.frombuffer(file, np.uint8), mode)
        return opencv_canvas(cv2, gray, artifact.metadata.canvas)

    return _with_our_network(artifact, canvas_of)


def _detect_files(
    artifact: Artifact, files: Sequence[bytes], batch_size: int, decode: Decode
) -> list[Detections]:
    found = []
    for result in artifact.detect_files(files, batch_size=batch_size, decode=decode):
        if isinstance(result, InputError):
            raise WrongAnswerError(f"a file is refused: {result}")
        found.append(result)
    return found


def _check_stream(artifact: Artifact, files: Sequence[bytes], batch_size: int, decode: Decode) -> None:
    found = _detect_files(artifact, files, batch_size, decode)
    if len(found) != len(files):
        raise WrongAnswerError(f"{len(files)} photographs give {len(found)} results")
    for file, detections in zip(files, found, strict=True):
        check.require_same_faces(detections, check.expected_detections(file, artifact))
