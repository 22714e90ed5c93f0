"""The formats, precisions and runtimes in which the detector is timed."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lensbox.artifact.self_test import IOU_TOLERANCES, TOLERANCES
from lensbox.bench.detections import require_same_detections
from lensbox.bench.runner import MakeRun, UnavailableError, Way, WrongAnswerError, always
from lensbox.common.errors import ArtifactError
from lensbox.export.graph import quiet_export
from lensbox.export.pipeline import save_artifact
from lensbox.model import FaceDetector
from lensbox.model.protocol_check import named
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection_sets import Limits, found_in
from lensbox.runtime.loading import load_artifact

if TYPE_CHECKING:
    import onnxruntime

TORCHSCRIPT = "TorchScript, float32"
ONNX = "ONNX file, onnxruntime"
TORCHSCRIPT_NETWORK = "TorchScript, the network alone"
ONNXRUNTIME_NETWORK = "onnxruntime, the network alone"
CAPTURED = ", captured"
_OWN = (TORCHSCRIPT, TORCHSCRIPT + CAPTURED, ONNX, TORCHSCRIPT_NETWORK)

_ROUNDED = Limits(boxes=3.0, scores=0.05, iou=0.1, extras={})  # for the 8 bits of mantissa of bfloat16


class Detectors:
    """The detector's files, each exported on first use.

    detector: eager, on the CPU, in eval mode. folder: for the files. device: "cpu" or "cuda".
    """

    def __init__(self, detector: FaceDetector, folder: Path, device: str, threads: int) -> None:
        self.detector, self.device, self.threads = detector, device, threads
        self._folder = folder
        self._artifacts: dict[str, Artifact] = {}
        self._failures: dict[str, str] = {}

    def canvases(self, artifact: Artifact, batch: int) -> tuple[Tensor, tuple[float, float]]:
        """Return copies of the self-test's picture as canvases, and its thresholds of score and IoU."""
        test = artifact.metadata.self_test
        with torch.inference_mode():
            canvases, _ = artifact.module.preprocess([test.image.to(self.device)])
        repeated: Tensor = canvases.repeat(batch, 1, 1, 1)
        return repeated, (test.score_threshold, test.iou_threshold)

    def torchscript(self, dtype: str = "float32", copy: str = "") -> Artifact:
        """Return the TorchScript artifact. copy: a name for one that is loaded for itself."""
        return self._loaded(f"detector.{dtype}.pt", copy, self._saving("torchscript", dtype))

    def package(self, dtype: str, copy: str = "") -> Artifact:
        """Return the AOTInductor package. Raises UnavailableError, such as for a missing compiler."""
        return self._loaded(f"detector.{dtype}.pt2", copy, self._saving("aoti", dtype))

    def onnx(self) -> Artifact:
        """Return the ONNX file. Raises UnavailableError."""
        with _packages_of_onnx():
            import lensbox.export.formats.onnx  # noqa: F401
        return self._loaded("detector.onnx", "", partial(save_artifact, kind="onnx"))

    def network_session(self, canvases: Tensor) -> "onnxruntime.InferenceSession":
        """Return onnxruntime with the network alone, for as many canvases. Raises UnavailableError."""
        with _packages_of_onnx():
            import onnxruntime
            import onnxscript  # noqa: F401 (the exporter needs it)
        path = self._folder / f"network{len(canvases)}.onnx"
        with quiet_export(), torch.inference_mode(False), torch.no_grad():
            inputs = (canvases.clone(),)
            torch.onnx.export(self.detector, inputs, path, input_names=["images"], dynamo=True, verbose=False)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = self.threads, 1
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])

    def _saving(self, kind: str, dtype: str) -> Callable[..., object]:
        return partial(save_artifact, kind=kind, dtype=dtype, device=torch.device(self.device), tolerance=8.0)

    def _loaded(self, file: str, copy: str, save: Callable[..., object]) -> Artifact:
        key = f"{file} {copy}"
        if key not in self._artifacts:
            path = self._folder / file
            if file in self._failures:
                raise UnavailableError(self._failures[file])
            try:
                if not path.exists():
                    save(self.detector, path)
                self._artifacts[key] = load_artifact(path, self.device)
            except ArtifactError as error:  # such as a missing compiler: a second attempt would be as slow
                self._failures[file] = str(error)
                raise UnavailableError(str(error)) from error
        return self._artifacts[key]


def all_ways(detectors: Detectors, batch: int) -> list[Way]:
    """Return the ways to run a batch of canvases on the device of the detectors."""
    loaders: dict[str, Callable[..., Artifact]] = {TORCHSCRIPT: detectors.torchscript}
    if detectors.device == "cuda":
        loaders["TorchScript, TF32"] = partial(detectors.torchscript, "tf32")
        for dtype in ("float32", "tf32", "float16", "bfloat16"):
            loaders[f"package, {dtype}"] = partial(detectors.package, dtype)
        ways = []
        for name, load in loaders.items():
            for capture in (False, True):
                full_name = name + CAPTURED * capture
                prepare = partial(_prepare_detect, full_name, load, detectors, batch, capture)
                ways.append(_way(full_name, prepare, batch, "cuda"))
        return ways
    loaders[ONNX] = detectors.onnx
    loaders["package, float32"] = partial(detectors.package, "float32")
    ways = [
        _way(name, partial(_prepare_detect, name, load, detectors, batch), batch, "cpu")
        for name, load in loaders.items()
    ]
    return [
        *ways,
        _way("eager PyTorch", partial(_prepare_eager, detectors, batch), batch, "cpu"),
        _way(TORCHSCRIPT_NETWORK, partial(_prepare_network, detectors, batch, False), batch, "cpu"),
        _way(ONNXRUNTIME_NETWORK, partial(_prepare_network, detectors, batch, True), batch, "cpu"),
    ]


def _way(name: str, prepare: Callable[[], MakeRun], batch: int, device: str) -> Way:
    return Way(
        name,
        prepare,
        ("complete" if device == "cuda" else "call",),
        images=batch,
        own=name in _OWN,
        slow_to_start=name.startswith("package"),
    )


def _prepare_detect(
    name: str, load: Callable[..., Artifact], detectors: Detectors, batch: int, capture: bool = False
) -> MakeRun:
    """Prepare an artifact. A captured one is loaded for itself: plain calls must not run in its graphs."""
    artifact = load(copy="captured") if capture else load()
    canvases, thresholds = detectors.canvases(artifact, batch)
    if capture:
        artifact.capture([batch], *thresholds)
    call = partial(artifact.detect, canvases, *thresholds)
    expected = found_in(named(detectors.detector.detect(canvases[:1].cpu(), *thresholds)), None)
    tolerance, iou = TOLERANCES[detectors.device], IOU_TOLERANCES[detectors.device]
    limits = _ROUNDED if "bfloat16" in name else Limits(tolerance.boxes, tolerance.scores, iou, {})
    answer = named(call())
    for index in range(batch):
        require_same_detections(found_in(answer, None, index), expected, thresholds, limits)
    return always(call)


def _prepare_eager(detectors: Detectors, batch: int) -> MakeRun:
    canvases, thresholds = detectors.canvases(detectors.torchscript(), batch)
    return always(partial(detectors.detector.detect, canvases, *thresholds))


def _prepare_network(detectors: Detectors, batch: int, onnxruntime: bool) -> MakeRun:
    artifact = detectors.torchscript()
    canvases = detectors.canvases(artifact, batch)[0]
    call: Callable[[], Any] = partial(artifact.module, canvases)
    if onnxruntime:
        call = partial(detectors.network_session(canvases).run, None, {"images": canvases.numpy()})
    for value, wanted in zip(call(), detectors.detector(canvases), strict=True):
        if not torch.allclose(torch.as_tensor(value), wanted, rtol=1e-4, atol=0.01):
            raise WrongAnswerError("boxes or logits differ by more than rounding")
    return always(call)


@contextlib.contextmanager
def _packages_of_onnx() -> Iterator[None]:
    """Turn a missing package into UnavailableError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the Python package {error.name!r} is not installed; pip install 'lensbox[onnx]' brings it"
        ) from error
