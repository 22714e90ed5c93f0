"""Fixtures for the commands of training and evaluation: synthetic photographs of faces, WIDER FACE layout."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
from picture_files import ellipse
from PIL import Image
from programs import Lensbox


@pytest.fixture(scope="session")
def faces_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 dark photographs in the WIDER FACE layout, each with one to three bright ellipses with dark eyes."""
    folder = tmp_path_factory.mktemp("faces")
    rng = np.random.default_rng(7)
    lines = []
    for index in range(12):
        width, height = (200, 150) if index % 2 else (120, 260)
        pixels = rng.normal(60, 10, (height, width))
        name = f"{'0--Event' if index % 2 else 'other'}/{index}.png"
        lines += [name, str(1 + index % 3)]
        for slot in range(1 + index % 3):
            w, h = rng.integers([24, 30], [40, 48]).tolist()
            x, y = int(rng.integers(0, width - w)), slot * height // 3 + int(rng.integers(0, 5))
            y = min(y, height - h)
            pixels[ellipse((x, y, x + w, y + h), width, height).numpy() > 0] = 210
            pixels[y + h // 3 : y + h // 2, x + w // 4 : x + 3 * w // 4] = 30
            lines.append(f"{x} {y} {w} {h} 0 0 0 0 0 0")
        (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / "images" / name)
    (folder / "faces_bbx_gt.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def faces_shard(faces_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same photographs as a tar shard."""
    path = tmp_path_factory.mktemp("shard") / "faces.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(faces_folder, "faces")
    return path


BLACK = np.zeros((100, 200, 3), np.uint8)


def write_labels(folder: Path, *rows: str, name: str = "a.png", pixels: np.ndarray = BLACK) -> Path:
    """Write a photograph `images/a.png`, and a label file in the WIDER FACE layout with these boxes."""
    (folder / "images").mkdir(exist_ok=True)
    Image.fromarray(pixels).save(folder / "images" / "a.png")
    (folder / "x_bbx_gt.txt").write_text("\n".join([name, str(len(rows)), *rows, ""]))
    return folder


@pytest.fixture(name="lensbox")
def lensbox_on_cpu(lensbox: Lensbox, monkeypatch: pytest.MonkeyPatch) -> Lensbox:
    """Run a command on the CPU unless it names a device."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # which the command would leave to other tests

    def run(command: str, *words: object, code: int = 0) -> tuple[str, str]:
        device = [] if "--device" in words else ["--device", "cpu"]
        return lensbox(command, *device, *words, code=code)

    return run
