"""Wrapped detectors of other libraries give the libraries' own results.

Each test needs the packages that docs/your_detector.md installs for these detectors.
"""

import copy
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import PIL.Image
import pytest
import torch
from programs import require_torchvision
from runner_answers import answer
from services import client_of
from torch import Tensor, nn

from lensbox.export import save_artifact
from lensbox.export.verify.pictures import drawn
from lensbox.export.verify.reference import tolerance_of
from lensbox.model import Detector
from lensbox.model.protocol import Normalise
from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime import Canvas, load_artifact
from lensbox.runtime.detect.detection import Detections, detections_in
from lensbox.runtime.detect.self_test import Difference

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore"),  # the libraries warn, and torch warns about them
]
IOU = 0.5
CPU = tolerance_of("float32", "cpu", 0)

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZE, CLASSES = 160, 5


class Example(NamedTuple):
    """A detector and its library's own answers.

    own: takes the network's float32 images [B, 3, h, w] and thresholds of score and IoU; returns boxes
    [n, 4], scores [n] and labels [n] for each canvas. Boxes reach beyond the canvas unless the library clips
    before NMS: Lensbox clips them after `detect`. class_layers: compute the logits of classes. score: a
    threshold above which fewer boxes lie than go to NMS.
    """

    detector: Detector
    own: Callable[[Tensor, float, float], list[tuple[Tensor, Tensor, Tensor]]]
    class_layers: Sequence[nn.Module] = ()
    score: float = 0.3


def make_example(name: str, monkeypatch: pytest.MonkeyPatch) -> Example:
    """Return an example, whose scores differ clearly between pictures. Skip the test without its library."""
    for folder in ("detectors", "torchvision_detector"):
        monkeypatch.syspath_prepend(str(EXAMPLES / folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    torch.manual_seed(0)
    example = _MAKERS[name](name)
    if example.class_layers:
        _spread_scores(example)
    return example


def spots(height: int, width: int) -> Tensor:
    """Return three canvases of soft random spots, uint8 [3, 3, height, width]."""
    coarse = torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    return (255 * nn.functional.interpolate(coarse, (height, width), mode="bilinear")).round().byte()


def _spread_scores(example: Example) -> None:
    """Calibrate batch norms, and give logits of classes a deviation of 1 about -2: no score is 0 or 1."""
    detector: Any = example.detector
    normalise = Normalise(detector.specification)
    canvases = normalise(torch.cat([spots(SIZE, SIZE), drawn(detector).canvases]))
    norms = [module for module in detector.modules() if isinstance(module, nn.BatchNorm2d)]
    logits: dict[nn.Module, list[Tensor]] = {layer: [] for layer in example.class_layers}
    with torch.no_grad():
        for norm in norms:
            norm.train().momentum = None  # the mean of all batches
            norm.reset_running_stats()
        detector.detect(canvases, 0.0, 0.5)
        for norm in norms:
            norm.eval()
        hooks = [
            layer.register_forward_hook(lambda layer, inputs, output: logits[layer].append(output.flatten()))
            for layer in example.class_layers
        ]
        detector.detect(canvases, 0.0, 0.5)
        for layer, outputs in logits.items():
            mean, factor = torch.cat(outputs).mean(), 1 / torch.cat(outputs).std()
            layer.weight *= factor  # type: ignore[operator]
            layer.bias.copy_((layer.bias - mean) * factor - 2)  # type: ignore[operator]
    for hook in hooks:
        hook.remove()


def _torchvision(name: str) -> Example:
    require_torchvision()
    from fcos import make_dense  # type: ignore[import-not-found]
    from torchvision.models import detection

    make = getattr(detection, f"{name}_resnet50_fpn")
    options = {"num_classes": CLASSES, "min_size": SIZE, "max_size": SIZE}
    network = make(weights=None, weights_backbone=None, **options).eval()
    decode = network.box_coder.decode if name == "fcos" else network.box_coder.decode_single
    layer = network.head.classification_head.cls_logits
    detector = make_dense(network, decode, SIZE, CLASSES)

    def own(images: Tensor, score: float, iou: float) -> list[tuple[Tensor, Tensor, Tensor]]:
        network.score_thresh, network.nms_thresh = score, iou
        return [(found["boxes"], found["scores"], found["labels"]) for found in network(list(images))]

    return Example(detector, own, [layer], 0.3 if name == "fcos" else 0.6)


def _ssdlite(name: str) -> Example:
    require_torchvision()
    from ssdlite import CATEGORIES, SsdLite, make_network  # type: ignore[import-not-found]

    network = make_network()  # random weights, with clear scores
    detector = SsdLite(network, CATEGORIES)
    named = detector.named.tolist()

    def own(images: Tensor, score: float, iou: float) -> list[tuple[Tensor, Tensor, Tensor]]:
        network.score_thresh, network.nms_thresh = score, iou
        answers = []
        for found in network(list(images)):
            known = torch.isin(found["labels"], detector.named)
            labels = torch.tensor([named.index(label) for label in found["labels"][known].tolist()])
            answers.append((found["boxes"][known], found["scores"][known], labels))
        return answers

    return Example(detector, own, score=0.5)


def _ultralytics(name: str) -> Example:
    pytest.importorskip("ultralytics")
    from ultralytics.utils.nms import non_max_suppression
    from yolo11 import yolo11  # type: ignore[import-not-found]

    detector = yolo11(size=SIZE, variant=f"{name}n.yaml")
    layers = [branch[-1] for branch in detector.network.model[-1].cv3]

    def own(images: Tensor, score: float, iou: float) -> list[tuple[Tensor, Tensor, Tensor]]:
        network = copy.deepcopy(detector.network)
        network.model[-1].export = network.model[-1].dynamic = False
        found = non_max_suppression(network(images), score, iou, max_det=300, max_time_img=600)
        return [(one[:, :4], one[:, 4], one[:, 5]) for one in found]

    return Example(detector, own, layers)


def _transformers(name: str) -> Example:
    pytest.importorskip("transformers")
    import detr  # type: ignore[import-not-found]
    from transformers import RTDetrImageProcessor, YolosImageProcessor

    detector = getattr(detr, name)(size=SIZE, classes=CLASSES)
    processor = YolosImageProcessor() if name == "yolos" else RTDetrImageProcessor()
    layers = [detector.network.class_labels_classifier.layers[-1]] if name == "yolos" else []

    def own(images: Tensor, score: float, iou: float) -> list[tuple[Tensor, Tensor, Tensor]]:
        sizes = [images.shape[2:]] * len(images)
        found = processor.post_process_object_detection(detector.network(images), score, sizes)
        return [(one["boxes"], one["scores"], one["labels"]) for one in found]

    return Example(detector, own, layers)


_MAKERS: dict[str, Callable[[str], Example]] = {
    **dict.fromkeys(("fcos", "retinanet"), _torchvision),
    "ssdlite": _ssdlite,
    **dict.fromkeys(("yolo11", "yolo26"), _ultralytics),
    **dict.fromkeys(("rtdetr", "dfine", "yolos"), _transformers),
}


@pytest.mark.parametrize("name", _MAKERS)
def test_detectors_find_what_the_library_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In eager PyTorch: an export compares its file with that."""
    example = make_example(name, monkeypatch)
    height, width = example.detector.specification.height, example.detector.specification.width
    canvases = spots(height, width)
    with torch.no_grad():
        numbers = Normalise(example.detector.specification)(canvases)
        answer = example.detector.detect(numbers, example.score, IOU)
        normalises_itself = name in ("fcos", "retinanet", "ssdlite")
        library = example.own(canvases.float() / 255 if normalises_itself else numbers, example.score, IOU)
    slots, difference = answer["scores"].shape[1], Difference()
    for index, (boxes, scores, labels) in enumerate(library):
        wanted, actual = Detections(boxes, scores, labels.long()), detections_in(answer, index)
        difference.add(wanted, actual, (example.score, IOU), CPU, f"canvas {index}", slots)
    assert difference.expected >= 3
    assert not difference.unexplained
    assert difference.by_rounding <= 0.05 * difference.expected


@pytest.mark.parametrize("name", ["rtdetr", "yolos"])
def test_input_is_that_of_the_library_s_processor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processors of transformers that resize with Pillow, for photographs of any size."""
    transformers = pytest.importorskip("transformers")
    kind = transformers.YolosImageProcessorPil if name == "yolos" else transformers.RTDetrImageProcessorPil
    specification = make_example(name, monkeypatch).detector.specification
    size = {"height": SIZE, "width": SIZE}
    for seed, sides in enumerate([(480, 640), (700, 90), (31, 57), (SIZE, SIZE), (90, 1200)]):
        image = torch.randint(0, 256, (3, *sides), generator=torch.Generator().manual_seed(seed)).byte()
        canvases, _ = fit_to_canvases([image], None, *Canvas.of(specification).as_tuple)
        photo = PIL.Image.fromarray(image.permute(1, 2, 0).numpy())
        for options, ours in (
            ({"do_rescale": False, "do_normalize": False}, canvases),
            ({}, Normalise(specification)(canvases)),
        ):
            theirs = kind(size=size, do_pad=False, **options)(photo, return_tensors="pt")["pixel_values"]
            if ours.dtype == torch.uint8:
                assert torch.equal(theirs, ours.to(theirs.dtype)), sides
            else:
                torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-6)


def test_yolo11_answers_like_ultralytics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Photographs of odd sizes: LetterBox's canvas to the byte; boxes in Python, in C++ and over HTTP."""
    example = make_example("yolo11", monkeypatch)
    from ultralytics.data.augment import LetterBox
    from ultralytics.utils.ops import scale_boxes

    path, file, chance, found = tmp_path / "yolo11.pt", tmp_path / "photo.png", random.Random(5), 0
    save_artifact(example.detector, path)
    artifact, canvas = load_artifact(path), Canvas.of(example.detector.specification).as_tuple
    thresholds: dict[str, Any] = {"score_threshold": example.score, "iou_threshold": IOU}
    words = ["--score-threshold", example.score, "--iou-threshold", IOU]
    with client_of(path) as client:
        for index in range(20):
            height, width = (chance.randrange(41, 700) for _ in range(2))
            photo = spots(height, width)[index % 3].permute(1, 2, 0).numpy()
            boxed = torch.from_numpy(LetterBox((SIZE, SIZE), auto=False)(image=photo)).permute(2, 0, 1)[None]
            fitted, _ = fit_to_canvases([torch.from_numpy(photo).permute(2, 0, 1)], None, *canvas)
            assert torch.equal(fitted, boxed), (height, width)
            with torch.no_grad():
                boxes, scores, _ = example.own(boxed.float() / 255, example.score, IOU)[0]
            boxes = scale_boxes((SIZE, SIZE), boxes, photo.shape)
            PIL.Image.fromarray(photo).save(file)
            ours = artifact.detect_image(file, **thresholds)
            cpp = answer("detect", "--artifact", path, "--image", file, *words)["images"][0]
            http = client.post("/v1/detect", params=thresholds, content=file.read_bytes()).raise_for_status()
            answers = [torch.as_tensor(ours.boxes)]
            for detections in (cpp["detections"], http.json()["detections"]):
                answers.append(torch.tensor([one["box"] for one in detections]).view(-1, 4))
            for actual in answers:
                torch.testing.assert_close(actual, boxes, rtol=0, atol=1e-3)
            found += len(scores)
    assert found >= 20
