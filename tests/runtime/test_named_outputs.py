"""Labels and further outputs of artifacts that have them."""

import dataclasses

import pytest
import torch
from torch import Tensor
from user_detectors import RedAndBlue

from lensbox.common.errors import ArtifactError
from lensbox.export.pipeline import save_artifact
from lensbox.runtime import Artifact, load_artifact


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    path = tmp_path_factory.mktemp("named") / "colors.pt"
    save_artifact(RedAndBlue(), path)
    return load_artifact(path)


@pytest.fixture
def canvas() -> Tensor:
    """uint8 [1, 3, 192, 320]: a red square, and a blue one."""
    canvas = torch.full((1, 3, 192, 320), 110, dtype=torch.uint8)
    canvas[0, :, 40:64, 20:44] = torch.tensor([250, 10, 10], dtype=torch.uint8)[:, None, None]
    canvas[0, :, 120:144, 240:264] = torch.tensor([10, 10, 240], dtype=torch.uint8)[:, None, None]
    return canvas


def test_detect_named_has_all_outputs_of_a_batch(artifact: Artifact, canvas: Tensor) -> None:
    found = artifact.detect_named(canvas, 0.4, 0.1)
    assert list(found) == ["boxes", "scores", "counts", "labels"]
    assert found["counts"].tolist() == [2]
    assert sorted(found["labels"][0, :2].tolist()) == [0, 1]
    for single, name in zip(artifact.detect(canvas, 0.4, 0.1), ("boxes", "scores", "counts"), strict=True):
        assert torch.equal(single, found[name])


def test_a_label_outside_of_the_classes_is_the_artifact_s_fault(artifact: Artifact, canvas: Tensor) -> None:
    metadata = dataclasses.replace(artifact.metadata, classes=("red",))
    wrong = Artifact(artifact.module, metadata, artifact.device)
    with pytest.raises(ArtifactError, match="labels from 0 to 0, as it has 1 classes, got 1"):
        wrong.detect_image(canvas[0], 0.4, 0.1)


def test_labels_of_slots_that_do_not_count_may_be_anything(artifact: Artifact, canvas: Tensor) -> None:
    padding = 30 - 2

    class Padded:
        def __getattr__(self, name: str) -> object:
            return getattr(artifact.module, name)

        def detect_named(self, images: Tensor, score: float, iou: float) -> dict[str, Tensor]:
            found: dict[str, Tensor] = artifact.module.detect_named(images, score, iou)
            return {**found, "labels": torch.cat([found["labels"][:, :2], torch.full((1, padding), -7)], 1)}

    found = Artifact(Padded(), artifact.metadata, artifact.device).detect_image(canvas[0], 0.4, 0.1)
    assert found.labels is not None
    assert len(found.labels) == 2
