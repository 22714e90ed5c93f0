"""Artifacts that are exported programs: the same interface and the same answers."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from altered_packages import with_metadata, without
from damaged_files import rewritten
from in_threads import assert_same_in_threads
from torch import Tensor
from user_detectors import RedAndBlue

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.export.pipeline import save_artifact
from lensbox.export.verify.pictures import draw_scene
from lensbox.runtime import Artifact, load_artifact

LOW = 0.05


@pytest.fixture(scope="module")
def program(program_path: Path) -> Artifact:
    return load_artifact(program_path)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    path = tmp_path_factory.mktemp("script") / "detector.pt"
    save_artifact(RedAndBlue(side=8).eval(), path)
    return load_artifact(path)


class TestTheSameInterface:
    def test_images_of_any_size(self, program: Artifact, script: Artifact) -> None:
        photographs = [draw_scene(seed, 60 + 20 * seed, 90) for seed in range(3)]
        found = program.detect_images(photographs, LOW)
        for one, other in zip(found, script.detect_images(photographs, LOW), strict=True):
            assert len(other.scores) > 0
            torch.testing.assert_close(one.boxes, other.boxes)
            torch.testing.assert_close(one.scores, other.scores)
            torch.testing.assert_close(one.labels, other.labels)

    @pytest.mark.parametrize("batch", [0, 1, 3])
    def test_canvases(self, program: Artifact, script: Artifact, batch: int) -> None:
        canvases = torch.randint(0, 256, (batch, 3, 192, 320), dtype=torch.uint8)
        program.capture([1, 2])
        found, wanted = program.detect_named(canvases), script.detect_named(canvases)
        assert found.keys() == wanted.keys()
        for name, value in found.items():
            torch.testing.assert_close(value, wanted[name], rtol=1e-4, atol=0.01)

    def test_in_several_threads(self, program: Artifact) -> None:
        canvases = [torch.randint(0, 256, (1, 3, 192, 320), dtype=torch.uint8) for _ in range(6)]
        assert_same_in_threads(program, canvases, LOW, threads=3)

    def test_loss(self, program: Artifact, script: Artifact) -> None:
        boxes = torch.tensor([[1.0, 2, 5, 7], [3, 3, 9, 8]])
        assert program.loss(boxes, boxes + 1) == script.loss(boxes, boxes + 1)

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (torch.zeros(1, 3, 192, 320), "images must be uint8, got float32"),
            (torch.zeros(1, 3, 192, 319, dtype=torch.uint8), r"got \[1, 3, 192, 319\]"),
        ],
    )
    def test_wrong_canvases(self, program: Artifact, images: Tensor, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            program.detect(images)


def test_it_is_for_the_cpu(program_path: Path) -> None:
    assert load_artifact(program_path, "auto").device.type == "cpu"
    with pytest.raises(DeviceError, match=r"must be cpu for an exported program, got cuda for .*\.pt2"):
        load_artifact(program_path, "cuda")


def with_a_graph_of_nothing(entries: dict[str, bytes]) -> None:
    (name,) = (name for name in entries if name.endswith("/models/model.json"))
    entries[name] = b"{}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("/extra/lensbox.json"), "is not a Lensbox artifact: it holds no lensbox.json"),
        (with_metadata(lambda found: found.update(format_version=1)), "format version is 1"),
        (
            with_metadata(lambda found: found["ops"].append("lensbox::padded_nms.new(Tensor x) -> Tensor")),
            "needs the operator lensbox::padded_nms.new",
        ),
        (with_a_graph_of_nothing, "cannot be loaded by torch .*, it was written by torch"),
    ],
)
def test_what_does_not_fit(
    program_path: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None], message: str
) -> None:
    path = tmp_path / "changed.pt2"
    path.write_bytes(rewritten(program_path.read_bytes(), change))
    with pytest.raises(ArtifactError, match=rf"(?s)changed\.pt2 .*{message}"):
        load_artifact(path)
