"""TorchScript files: the operators that they need, and errors of the compiler with file and line."""

import linecache
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_detectors import Brightest, Named
from torch import Tensor, nn

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.common.errors import ArtifactError
from lensbox.export import save_artifact
from lensbox.runtime import load_artifact


class UsesNumpy(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        brightest = self.as_numbers(images)  # calls
        print(len(brightest))
        return super().detect(images, score_threshold, iou_threshold)

    def as_numbers(self, images: Tensor) -> Tensor:
        return torch.from_numpy(images.numpy())  # fails


class Nested(Brightest):
    """A detector whose inner module, below, does not compile."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = InForward()


class InForward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        chosen = [i for i in range(4) if i > 2]  # fails
        return x[chosen]


def line_of(comment: str, after: str) -> str:
    """Return 'file:line' of the first line with this comment after the line that starts with `after`."""
    lines = linecache.getlines(__file__)
    start = next(number for number, line in enumerate(lines) if line.startswith(after))
    number = next(number for number in range(start, len(lines)) if lines[number].endswith(f"# {comment}\n"))
    return f"{__file__}:{number + 1}"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(UsesNumpy, "has no attribute or method 'numpy'"), (Nested, "Comprehension ifs are not supported yet")],
)
def test_names_reason_and_lines(kind: type[Brightest], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        save_artifact(kind(), tmp_path / "a.pt", trace=False)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("the detector cannot be exported, as TorchScript cannot compile it: ")
    assert re.search(reason, lines[0])
    assert len(lines[0]) < 700
    assert lines[1].startswith(f"  {line_of('fails', f'class {kind.__name__}(')}: ")
    assert len(lines) <= 4
    if kind is UsesNumpy:
        assert (
            lines[2]
            == f"  {line_of('calls', 'class UsesNumpy(')}: brightest = self.as_numbers(images)  # calls"
        )
    assert "<--- HERE" not in str(caught.value)
    # torch keeps the types of modules that it failed to compile: "Can't redefine method".
    with pytest.raises(ArtifactError) as again:
        save_artifact(kind(), tmp_path / "a.pt", trace=False)
    assert str(again.value) == str(caught.value)
    assert not list(tmp_path.iterdir())


class FailsInTorchScript(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            raise ValueError("images are not for TorchScript")
        return super().detect(images, score_threshold, iou_threshold)


def test_reports_code_that_compiles_but_fails(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match=r"a\.pt cannot be run on cpu: (?s:.*)images are not for TorchScript"
    ):
        save_artifact(FailsInTorchScript(), tmp_path / "a.pt", trace=False)


def brightest(images: Tensor, score_threshold: float) -> Named:
    """Return what `Brightest` detects. (TorchScript knows no `super()`.)"""
    cells = torch.nn.functional.avg_pool2d(images.float() / 255, 16)
    scores, index = cells.flatten(1).max(dim=1, keepdim=True)
    corner = torch.stack([index % 4, index // 4], dim=-1) * 16.0
    boxes = torch.cat([corner, corner + 16], dim=-1)
    return {"boxes": boxes, "scores": scores, "counts": (scores[:, 0] > score_threshold).int()}


class MixedNumbers(Brightest):
    """TorchScript compiles a list of Union[float, int], and fails when it runs; Python runs it."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        found = brightest(images, score_threshold)
        found["boxes"] += 0 * torch.tensor([10.0, 10, 30, 30], device=images.device)
        return found


class OtherInTorchScript(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        found = brightest(images, score_threshold)
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            found["boxes"] += 9.0
        return found


@pytest.mark.parametrize("kind", [FailsInTorchScript, MixedNumbers, OtherInTorchScript])
def test_traces_code_that_compiles_and_is_wrong(
    kind: type[Brightest], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_artifact(kind(), tmp_path / "a.pt")
    assert "the detector is traced, as its compiled code is wrong: " in caplog.text
    canvases = torch.randint(0, 256, (3, 1, 64, 64), dtype=torch.uint8)
    found, wanted = (
        load_artifact(tmp_path / "a.pt").detect(canvases, 0.2, 0.5),
        kind().detect(canvases, 0.2, 0.5),
    )
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    with pytest.raises(ArtifactError, match=r"cannot be run on cpu|fails its self-test"):
        save_artifact(kind(), tmp_path / "b.pt", trace=False)


def test_reason_of_code_that_fails_in_reduced_precision(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"a\.pt cannot be run on cpu: .*Union") as caught:
        save_artifact(MixedNumbers(), tmp_path / "a.pt", trace=False, dtype="float16")
    assert "Traceback" not in str(caught.value)


def test_python_3_14_has_no_torchscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    with pytest.raises(ArtifactError, match=r"needs Python 3\.13 or older.* --format program, aoti or onnx"):
        save_artifact(Brightest(), tmp_path / "detector.pt")


@pytest.mark.exhaustive
def test_imports_call_no_torchscript() -> None:
    """Turn its warnings into errors."""
    modules = ("export.formats.torchscript", "model", "ops", "runtime.loading", "serve.cli", "train.cli")
    code = "import " + ", ".join(f"lensbox.{name}" for name in modules)
    warns = [f"-Werror:`torch.jit:{category}" for category in ("DeprecationWarning", "FutureWarning")]
    subprocess.run([sys.executable, *warns, "-c", code], check=True)
