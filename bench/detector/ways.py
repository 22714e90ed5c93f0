"""The ways to run the detector that are timed, and the yardstick."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from lensbox.bench.detector.onnx_session import (
    exported_detector,
    exported_network,
    missing_package,
    open_session,
)
from lensbox.bench.detector.subject import Subject
from lensbox.bench.detector.yunet import OUTPUTS, YuNet
from lensbox.bench.peers.peer import UnavailableError
from lensbox.common.errors import ArtifactError
from lensbox.export.aoti_writer import save_aoti
from lensbox.export.torchscript import script_and_freeze
from lensbox.runtime.formats.onnx_options import OnnxOptions
from lensbox.runtime.loading import load_artifact
from lensbox.runtime.torchscript import quiet_torchscript

# detect: boxes, scores and counts, post-processing included. network: boxes and logits of all anchors.
# yardstick: another network, whose answer means nothing.
Computes = Literal["detect", "network", "yardstick"]
Call = Callable[[], Any]  # boxes, scores and counts, or boxes and logits: tensors or arrays


@dataclass(frozen=True)
class Way:
    """load: makes the call that is timed; raises UnavailableError where it cannot run.

    slow_to_start: whether `--quick` leaves it out. rounds: whether it computes in bfloat16, so that its
    answer is near the detector's and not the same.
    """

    name: str
    computes: Computes
    load: Callable[[Subject], Call]
    slow_to_start: bool = False
    rounds: bool = False


def _eager_detect(subject: Subject) -> Call:
    detect = subject.detector.detect
    return lambda: detect(subject.canvas, subject.score_threshold, subject.iou_threshold)


def _artifact_detect(subject: Subject) -> Call:
    detect = subject.artifact.detect
    return lambda: detect(subject.canvas, subject.score_threshold, subject.iou_threshold)


def _onnx_detect(options: OnnxOptions) -> Callable[[Subject], Call]:
    def load(subject: Subject) -> Call:
        path = exported_detector(subject)
        try:
            detect = load_artifact(path, onnx=dataclasses.replace(options, threads=subject.threads)).detect
        except ArtifactError as error:
            raise UnavailableError(str(error)) from error
        return lambda: detect(subject.canvas, subject.score_threshold, subject.iou_threshold)

    return load


def _compiled_detect(subject: Subject) -> Call:
    path = subject.folder / "detector.pt2"
    try:
        save_aoti(subject.detector, path)
        detect = load_artifact(path).detect
    except ArtifactError as error:  # such as a missing compiler
        raise UnavailableError(str(error)) from error
    return lambda: detect(subject.canvas, subject.score_threshold, subject.iou_threshold)


def _optimized_detect(subject: Subject) -> Call:
    with quiet_torchscript():
        frozen = script_and_freeze(subject.detector, ["detect"])
        detect = torch.jit.optimize_for_inference(frozen, other_methods=["detect"]).detect
    return lambda: detect(subject.canvas, subject.score_threshold, subject.iou_threshold)


def _artifact_network(subject: Subject) -> Call:
    network = subject.artifact.module
    return lambda: network(subject.canvas)


def _compiled_network(subject: Subject) -> Call:
    network = torch.compile(subject.detector, dynamic=False, fullgraph=True)
    return lambda: network(subject.canvas)


def _onnxruntime_network(subject: Subject) -> Call:
    run = open_session(exported_network(subject), subject.threads).run
    inputs = {"images": subject.canvas.numpy()}
    return lambda: run(None, inputs)


def _onnxruntime_yunet(subject: Subject) -> Call:
    try:
        import onnx

        from lensbox.export.onnx_exporter import to_onnx
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    path = subject.folder / "yunet.onnx"
    onnx.save(to_onnx(YuNet().eval(), torch.zeros(2, 3, *subject.canvas.shape[2:]), OUTPUTS), path)
    run = open_session(path, subject.threads).run
    inputs = {"images": subject.canvas.float().expand(-1, 3, -1, -1).numpy()}
    return lambda: run(None, inputs)


TORCHSCRIPT_DETECT = "TorchScript detect, the artifact"
ONNX_DETECT = "ONNX file detect, onnxruntime"
TORCHSCRIPT_NETWORK = "TorchScript network, the artifact's"
ONNXRUNTIME_NETWORK = "onnxruntime network"
YUNET = "onnxruntime YuNet-n, the yardstick"

_BFLOAT16 = OnnxOptions("openvino", precision="bfloat16")
WAYS = [
    Way(TORCHSCRIPT_DETECT, "detect", _artifact_detect),
    Way(ONNX_DETECT, "detect", _onnx_detect(OnnxOptions())),
    Way("ONNX file detect, OpenVINO", "detect", _onnx_detect(OnnxOptions("openvino"))),
    Way("ONNX file detect, OpenVINO in bfloat16", "detect", _onnx_detect(_BFLOAT16), rounds=True),
    Way("AOTInductor package detect", "detect", _compiled_detect, slow_to_start=True),
    Way("TorchScript detect, optimize_for_inference", "detect", _optimized_detect),
    Way("eager detect", "detect", _eager_detect),
    Way(TORCHSCRIPT_NETWORK, "network", _artifact_network),
    Way("torch.compile network", "network", _compiled_network, slow_to_start=True),
    Way(ONNXRUNTIME_NETWORK, "network", _onnxruntime_network),
    Way(YUNET, "yardstick", _onnxruntime_yunet),
]
# A defect of these is Lensbox's own.
OWN = (TORCHSCRIPT_DETECT, ONNX_DETECT, TORCHSCRIPT_NETWORK)
