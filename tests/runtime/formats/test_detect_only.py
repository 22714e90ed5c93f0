"""Files that hold only `detect` have the interface of the TorchScript file.

`tests/runtimes/test_formats.py` compares the detections in photographs.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lensbox.runtime import Artifact, load_artifact

LOW = 0.05  # a score threshold at which the small detector finds something in every picture


DETECT_ONLY = ["onnx_path", "package_path", "program_path"]


@pytest.fixture(scope="module", params=["artifact_path", *DETECT_ONLY])
def artifact(request: pytest.FixtureRequest) -> Artifact:
    """A TorchScript file, an ONNX file, a package of machine code, and a program."""
    return load_artifact(request.getfixturevalue(request.param))


@pytest.mark.parametrize("batch", [0, 1, 3, 40])
def test_canvases_and_capture(artifact: Artifact, artifact_path: Path, batch: int) -> None:
    script = load_artifact(artifact_path)
    canvases = torch.randint(0, 256, (batch, 1, 256, 256), dtype=torch.uint8)
    artifact.capture([1, 2])
    for images in (canvases, canvases.transpose(2, 3)):  # the second is not contiguous
        torch.testing.assert_close(artifact.detect(images), script.detect(images), rtol=1e-4, atol=0.01)


def test_module_has_the_methods_of_every_format(artifact: Artifact) -> None:
    """As docs/artifact.md, "The methods", writes them."""
    module = artifact.module
    image = torch.randint(0, 256, (3, 300, 200), dtype=torch.uint8)
    canvases, geometry = module.preprocess([image])
    outputs = module.detect(canvases, LOW, 0.5)
    boxes, counts = outputs["boxes"], outputs["counts"]
    assert counts.item() > 0
    torch.testing.assert_close(dict(outputs), artifact.detect(canvases, LOW, 0.5), rtol=0, atol=0)
    of_photo = module.restore(boxes, geometry)[0, : int(counts)]
    found = artifact.detect_image(image, LOW, 0.5)
    torch.testing.assert_close(of_photo, torch.as_tensor(found.boxes), rtol=0, atol=0)
    assert module.loss(boxes[0], boxes[0]).item() == pytest.approx(0, abs=1e-6)


def test_in_several_threads(artifact: Artifact) -> None:
    canvases = [torch.randint(0, 256, (2, 1, 256, 256), dtype=torch.uint8) for _ in range(12)]
    wanted = [artifact.detect(batch, LOW) for batch in canvases]
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda batch: artifact.detect(batch, LOW), canvases))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("artifact", DETECT_ONLY, indirect=True)
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(1, 1, 256, 256), "images must be uint8, got float32"),
        (torch.zeros(1, 1, 256, 255).byte(), r"C, H, W = \[1, 256, 256\], got \[1, 1, 256, 255\]"),
        (torch.zeros(1, 256, 256).byte(), r"got \[1, 256, 256\]"),
        (torch.zeros(1, 1, 256, 256, dtype=torch.uint8, device="meta"), "images must be on cpu, got meta"),
    ],
)
def test_rejects_other_canvases(artifact: Artifact, images: Tensor, message: str) -> None:
    """The compiled code itself checks nothing."""
    with pytest.raises(ValueError, match=message):
        artifact.module.detect(images, 0.5, 0.5)
