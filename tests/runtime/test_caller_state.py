"""Answers do not depend on what the calling program has set: dtype, device, autocast, gradients, locale."""

import contextlib
import locale
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from picture_files import smooth_image

from lensbox.runtime import load_artifact
from lensbox.runtime.op_library import numbers_with_points


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def folder(path: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


STATES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "default dtype": lambda: default_dtype(torch.float64),
    "gradients": torch.enable_grad,
    "inference mode": torch.inference_mode,
    "working folder": lambda: folder("/"),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", ["artifact_path", "onnx_path", "package_path"])
def test_state_of_the_caller(kind: str, state: str, request: pytest.FixtureRequest) -> None:
    if kind == "onnx_path":
        pytest.importorskip("onnxruntime")
    path: Path = request.getfixturevalue(kind)
    image = smooth_image(3, 300, 200)
    plain = load_artifact(path, device="cpu")
    expected = plain.detect_image(image, 0.05)
    with STATES[state]():
        loaded = load_artifact(path, device="cpu")
        for artifact in (plain, loaded):
            found = artifact.detect_image(image, 0.05)
            assert torch.equal(found.boxes, expected.boxes)
            assert torch.equal(found.scores, expected.scores)
            assert artifact.self_test().passed
            assert artifact.loss(expected.boxes, expected.boxes) == 0
    assert len(expected.scores) > 0


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
    """Set a locale of this process whose numbers have a comma."""
    if shutil.which("localedef") is None:
        pytest.skip("needs localedef")
    made = tmp_path / "de_DE.UTF-8"
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", made], check=False, capture_output=True)
    if not made.exists():
        pytest.skip("needs the sources of locales")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    yield
    locale.setlocale(locale.LC_ALL, before)


@pytest.mark.usefixtures("decimal_comma")
@pytest.mark.parametrize("kind", ["artifact_path", "package_path"])
def test_decimal_comma(kind: str, request: pytest.FixtureRequest) -> None:
    artifact = load_artifact(request.getfixturevalue(kind), device="cpu")
    assert artifact.self_test().passed
    assert locale.localeconv()["decimal_point"] == ","


@pytest.mark.usefixtures("decimal_comma")
def test_schemas_are_read_with_points() -> None:
    text = "lensbox::scaled(Tensor x, float by=0.25, float eps=9.9999999999999995e-08) -> Tensor"
    with numbers_with_points():
        defaults = [one.default_value for one in torch._C.parse_schema(text).arguments]
    assert defaults == [None, 0.25, 1e-7]
