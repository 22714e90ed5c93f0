"""An artifact, a service for it in another process, and photographs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from serve_process import running_service


@pytest.fixture(scope="session")
def artifact_path(random_path: Path) -> Path:
    return random_path


@pytest.fixture(scope="session")
def url(artifact_path: Path) -> Iterator[str]:
    """The address of a service that is ready."""
    with running_service(artifact_path) as url:
        yield url


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three photographs, one of them rotated by EXIF, and one in a subfolder."""
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(7)

    def picture(width: int, height: int) -> PIL.Image.Image:
        coarse = generator.integers(0, 256, (5, 6, 3), dtype=np.uint8)
        return PIL.Image.fromarray(coarse).resize((width, height))

    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    picture(300, 200).save(folder / "b.jpg")
    picture(120, 260).save(folder / "a.PNG")
    picture(640, 480).save(folder / "turned.jpg", exif=turned)
    (folder / "below").mkdir()
    picture(90, 90).save(folder / "below" / "c.webp")
    (folder / "notes.txt").write_text("no image")
    (folder / ".hidden.jpg").write_text("no image")
    return folder
