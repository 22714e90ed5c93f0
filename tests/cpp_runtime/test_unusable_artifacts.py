"""Unusable artifacts and op libraries: exit code 3, nothing on stdout, a message that helps."""

import os
import shutil
import subprocess
from pathlib import Path

import PIL.Image
import pytest
import torch
from cpp_runtime.running import Completed, Rewrite, Run
from damaged_files import seal
from torch import Tensor, nn

from lensbox.artifact.metadata import METADATA_FILE
from lensbox.ops import library_path
from lensbox.runtime.loading import load_artifact
from lensbox.runtime.torchscript import quiet_torchscript


def assert_refused(result: Completed, *parts: str) -> None:
    assert (result.code, result.stdout) == (3, ""), result.stderr
    assert result.stderr.startswith("lensbox_runner: ")
    for part in parts:
        assert part in result.stderr
    assert "Exception raised from" not in result.stderr  # the first line of torch's C++ stack traces


def test_no_op_library(run: Run, artifact: Path) -> None:
    result = run("selftest", "--artifact", artifact, ops=None)
    assert_refused(result, "lensbox::letterbox", "not registered", "--ops", "LENSBOX_OPS_LIBRARY")


def test_a_library_that_lacks_an_op(run: Run, rewrite: Rewrite) -> None:
    path = rewrite(lambda metadata: metadata["ops"].append("lensbox::new_op(Tensor x) -> Tensor"))
    result = run("selftest", "--artifact", path)
    assert_refused(result, "lensbox::new_op", "not registered", str(library_path()))


def test_absent_op_library(run: Run, artifact: Path) -> None:
    assert_refused(run("selftest", "--artifact", artifact, "--ops", "no/lib.so"), "no/lib.so: no such file")
    assert_refused(run("selftest", "--artifact", artifact, ops="no/env.so"), "no/env.so: no such file")


def test_a_copy_of_the_op_library(run: Run, artifact: Path, tmp_path: Path) -> None:
    """Registering the ops twice would throw inside the linker, with its lock held."""
    copy = shutil.copy(library_path(), tmp_path / "copy.so")
    result = run("selftest", "--artifact", artifact, "--ops", library_path(), "--ops", copy)
    assert_refused(result, str(copy), "the ops of the namespace lensbox are registered already")


RECORD = "lensbox-build version=0.1.0 torch=1.4.0+cu92 backends=cpu,cuda"


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ('extern "C" void not_in_this_torch(); void f() { not_in_this_torch(); }', ["not_in_this_torch"]),
        (
            '#include <stdexcept>\nstatic int x = (throw std::runtime_error("too bad"), 1);',
            ["the process must end", "too bad"],
        ),
        (
            f'extern const char record[]; const char record[] = "{RECORD}";',
            ["another version of torch", RECORD],
        ),
    ],
)
def test_an_op_library_that_cannot_be_opened(
    run: Run, artifact: Path, tmp_path: Path, source: str, parts: list[str]
) -> None:
    (tmp_path / "library.cpp").write_text(source)
    library = tmp_path / "library.so"
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "library.cpp"],
        check=True,
        capture_output=True,
    )
    for libraries in (["--ops", library], ["--ops", library_path(), "--ops", library]):
        result = run("selftest", "--artifact", artifact, *libraries)
        this_torch = ".".join(torch.__version__.split(".")[:2])
        assert_refused(result, str(library), f"torch {this_torch}", *parts)


def test_an_op_library_beside_the_program_is_found(
    run: Run, runner: Path, artifact: Path, tmp_path: Path
) -> None:
    program = tmp_path / "lensbox_runner"
    shutil.copy2(runner, program)
    shutil.copy2(library_path(), tmp_path / "liblensbox_ops.so")
    result = run("selftest", "--artifact", artifact, ops=None, program=program)
    assert result.code == 0, result.stderr


class StandIn(nn.Module):
    """The methods of a detector that finds nothing, and prints a line."""

    @torch.jit.export
    def preprocess(self, images: list[Tensor], windows: Tensor) -> tuple[Tensor, Tensor]:
        print("preprocess was called")
        return torch.zeros([len(images), 1, 256, 256], dtype=torch.uint8), torch.ones(len(images), 6)

    @torch.jit.export
    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros(1, 256, 4), torch.zeros(1, 256), torch.zeros(1, dtype=torch.int32)

    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return boxes


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    PIL.Image.new("L", (8, 8)).save(path)
    return path


def test_prints_of_an_artifact_go_to_stderr(run: Run, artifact: Path, photo: Path, tmp_path: Path) -> None:
    path = tmp_path / "stand_in.pt"
    with quiet_torchscript():
        extra_files = {METADATA_FILE: load_artifact(artifact).metadata.to_json()}
        torch.jit.save(torch.jit.script(StandIn()), path, _extra_files=extra_files)
    seal(path)
    result = run("detect", "--artifact", path, "--image", photo)
    assert result.code == 0, result.stderr
    assert result.json() == {"images": [{"file": str(photo), "width": 8, "height": 8, "detections": []}]}
    assert result.stderr == "preprocess was called\n"
