"""AOTInductor packages: their content, and no file if the compiled code is wrong."""

import logging
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from small_detectors import Brightest
from torch import Tensor
from waiting import wait_until

from lensbox.common.errors import ArtifactError
from lensbox.export import save_artifact
from lensbox.export.formats import aoti
from lensbox.model import FaceDetector
from lensbox.runtime.formats.detect_only import Run, detect_of_graph


@pytest.fixture
def compiled_before(package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the compiler by the code of an existing package of the same detector."""
    folder = tmp_path / "code"
    folder.mkdir()
    with zipfile.ZipFile(package_path) as archive:
        for name in archive.namelist():
            if "/aotinductor/" in name:
                (folder / name.split("/")[-1]).write_bytes(archive.read(name))
    files = [str(path) for path in folder.iterdir()]
    monkeypatch.setattr(aoti, "compile_graph", lambda *_: files)


def test_holds_no_source_and_no_local_path(package_path: Path) -> None:
    with zipfile.ZipFile(package_path) as archive:
        names = archive.namelist()
        texts = [archive.read(name) for name in names if name.endswith((".cpp", ".json"))]
    assert len(texts) > 2
    assert not any(b"#include" in text or b"/tmp/" in text for text in texts)
    assert any(name.endswith(".so") for name in names)


@pytest.mark.usefixtures("compiled_before")
@pytest.mark.parametrize(
    "batch", [7, *(pytest.param(size, marks=pytest.mark.exhaustive) for size in (1, 256))]
)
def test_rejects_code_that_is_wrong_for_one_batch_size(
    detector: FaceDetector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Move the boxes, as AOTInductor once did without an error."""

    def wrong(call: Callable[[list[Tensor]], list[Tensor]], outputs: Sequence[str]) -> Run:
        def moved(inputs: list[Tensor]) -> list[Tensor]:
            count = len(inputs[0])
            boxes, *others = call(inputs)
            return [boxes + 52 * (count == batch), *others]

        return detect_of_graph(moved, outputs)

    monkeypatch.setattr("lensbox.runtime.formats.aoti.detect_of_graph", wrong)
    path = tmp_path / "out" / "detector.pt2"
    path.parent.mkdir()
    with pytest.raises(ArtifactError, match=f"fails its self-test|does not find .* in batches of {batch}\\b"):
        save_artifact(detector, path, score_threshold=0.25, iou_threshold=0.4, kind="aoti")
    assert not list(path.parent.iterdir())


def test_says_that_it_still_compiles(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(aoti, "_REPORT_SECONDS", 0.01)
    ended = threading.Event()

    def compiler(*_: object, **options: object) -> list[str]:
        wait_until(lambda: caplog.text.count("still compiling, after 0 s") >= 2)
        ended.set()
        return ["a.so"]

    monkeypatch.setattr(torch._inductor, "aot_compile", compiler)
    graph = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),)).module()
    assert isinstance(graph, torch.fx.GraphModule)
    assert aoti.compile_graph(graph, [torch.zeros(2)]) == ["a.so"]
    assert ended.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "lensbox-reports"]


def test_names_a_missing_compiler(tmp_path: Path) -> None:
    from torch._inductor import config

    with (
        config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(ArtifactError, match=r"--format aoti needs a C\+\+ compiler"),
    ):
        save_artifact(Brightest(), tmp_path / "detector.pt2", kind="aoti")
