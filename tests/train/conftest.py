"""Synthetic photographs of faces in the WIDER FACE layout, and the commands of training."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lensbox.common.main import main
from lensbox.train.data.image_store import ImageStore, load_images
from lensbox.train.data.labels import read_labels


def _photograph(rng: np.random.Generator, index: int) -> tuple[bytes, list[tuple[int, int, int, int]]]:
    """A dark photograph with one to three bright ellipses that have dark eyes, and their boxes x y w h."""
    width, height = (200, 150) if index % 2 else (120, 260)
    pixels = rng.normal(60, 10, (height, width))
    yy, xx = np.mgrid[:height, :width]
    boxes = []
    for slot in range(1 + index % 3):
        w, h = int(rng.integers(24, 40)), int(rng.integers(30, 48))
        x = int(rng.integers(0, width - w))
        y = int(rng.integers(slot * height // 3, max((slot + 1) * height // 3 - h, slot * height // 3 + 1)))
        y = min(y, height - h)
        inside = ((xx - x - w / 2) / (w / 2)) ** 2 + ((yy - y - h / 2) / (h / 2)) ** 2 <= 1
        pixels[inside] = 210
        pixels[y + h // 3 : y + h // 2, x + w // 4 : x + 3 * w // 4] = 30
        boxes.append((x, y, w, h))
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue(), boxes


@pytest.fixture(scope="session")
def faces_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 12 synthetic photographs in the WIDER FACE layout."""
    folder = tmp_path_factory.mktemp("faces")
    rng = np.random.default_rng(7)
    lines = []
    for index in range(12):
        content, boxes = _photograph(rng, index)
        name = f"{'0--Event' if index % 2 else 'other'}/{index}.png"
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        lines += [name, str(len(boxes))]
        lines += [f"{x} {y} {w} {h} 0 0 0 0 0 0" for x, y, w, h in boxes]
    (folder / "faces_bbx_gt.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def faces_shard(faces_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same photographs as a tar shard."""
    path = tmp_path_factory.mktemp("shard") / "faces.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(faces_folder, "faces")
    return path


@pytest.fixture(scope="session")
def store(faces_folder: Path) -> ImageStore:
    """The same photographs, ready for drawing views on the CPU."""
    return load_images(read_labels([faces_folder])[0], "cpu", capacity=8, workers=2)


Lensbox = Callable[..., tuple[str, str]]


@pytest.fixture
def lensbox(capsys: pytest.CaptureFixture[str]) -> Lensbox:
    """Run a command on the CPU, check its exit code, and return its standard output and standard error."""

    def run(command: str, *arguments: object, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        given = list(map(str, arguments))
        device = [] if "--device" in given else ["--device", "cpu"]
        assert main([command, *device, *given]) == code
        printed, said = capsys.readouterr()
        return printed, said

    return run
