"""Answers do not depend on what the calling program has set in torch, numpy, Pillow and its process."""

import contextlib
import locale
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.ImageFile
import pytest
import torch
from picture_files import encoded, noise, smooth_image

from lensbox.common.errors import InputError
from lensbox.runtime import Photo, load_artifact, read_image
from lensbox.runtime.op_library import numbers_with_points


@contextlib.contextmanager
def changed(change: Callable[[Any], None], value: Any, before: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


STATES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "wide numbers": lambda: changed(torch.set_default_dtype, torch.float64, torch.float32),
    "narrow numbers": lambda: changed(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "deterministic": lambda: changed(torch.use_deterministic_algorithms, True, False),
    "gradients": torch.enable_grad,
    "inference mode": torch.inference_mode,
    "numpy errors": lambda: np.errstate(all="raise"),
    "working folder": lambda: changed(os.chdir, "/", Path.cwd()),
}


@pytest.mark.parametrize("kind", ["artifact_path", "program_path", "onnx_path", "package_path"])
def test_state_of_the_caller(kind: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(kind)
    # A part of a photograph, whose corners have more digits than narrow numbers.
    photo = Photo(smooth_image(3, 300, 200), 4001, 3003, (1001, 777, 1401, 1377))
    plain = load_artifact(path, device="cpu")
    expected = plain.detect_image(photo, 0.05)
    assert len(expected.scores) > 0
    for state, entered in STATES.items():
        with entered():
            for artifact in (plain, load_artifact(path, device="cpu")):
                found = artifact.detect_image(photo, 0.05)
                assert torch.equal(found.boxes, expected.boxes), state
                assert torch.equal(found.scores, expected.scores), state
                assert artifact.loss(expected.boxes, expected.boxes) == 0, state
            assert artifact.self_test().passed, state


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_truncated_files_where_pillow_fills_them_up(
    file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = encoded(noise("RGB"), file_format)
    expected = read_image(file)
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert read_image(file).equal(expected)
    for length in (len(file) // 2, len(file) - 9):
        with pytest.raises(InputError):
            read_image(file[:length])


def test_forked_child_raises(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path, device="cpu")
    image = smooth_image(3, 300, 200)
    artifact.detect_image(image)
    child = os.fork()
    if child == 0:
        try:
            artifact.detect_image(image)
        except RuntimeError as error:
            os._exit(0 if "forked child" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def decimal_comma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a locale whose numbers have a comma, and use it."""
    if shutil.which("localedef") is None:
        pytest.skip("needs localedef")
    command = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")]
    if subprocess.run(command, check=False, capture_output=True).returncode > 1:  # 1: with warnings
        pytest.skip("needs the sources of locales")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    yield
    locale.setlocale(locale.LC_ALL, before)


@pytest.mark.usefixtures("decimal_comma")
def test_schemas_are_read_with_points() -> None:
    text = "lensbox::scaled(Tensor x, float by=0.25, float eps=9.9999999999999995e-08) -> Tensor"
    with numbers_with_points():
        defaults = [one.default_value for one in torch._C.parse_schema(text).arguments]
    assert defaults == [None, 0.25, 1e-7]
