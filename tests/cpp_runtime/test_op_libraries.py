"""The op library of the program: where it is found, and the messages about unusable ones."""

import json
import os
import shutil
from pathlib import Path

import PIL.Image
import programs
import pytest
import torch
from built_runner import built_runner
from damaged_files import rewritten, with_metadata
from runner_answers import refusal, run
from torch import Tensor
from user_detectors import Brightest

from lensbox.export.pipeline import save_artifact
from lensbox.ops import library_path
from lensbox.ops.canvas import fit_to_canvases


def test_names_missing_libraries_and_ops(
    random_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LENSBOX_OPS_LIBRARY", raising=False)
    command = (built_runner(), "selftest", "--artifact", random_path)
    message = programs.run(*command, code=3).stderr
    for part in ("lensbox::fit", "not registered", "--ops", "LENSBOX_OPS_LIBRARY"):
        assert part in message
    assert "no/env.so" in programs.run(*command, code=3, env={"LENSBOX_OPS_LIBRARY": "no/env.so"}).stderr
    assert "no/lib.so" in programs.run(*command, "--ops", "no/lib.so", code=3).stderr
    path = tmp_path / "newer.pt"
    change = with_metadata(lambda values: values["ops"].append("lensbox::new_op(Tensor x) -> Tensor"))
    path.write_bytes(rewritten(random_path.read_bytes(), change))
    assert "lensbox::new_op" in refusal(3, "selftest", "--artifact", path)


def test_refuses_a_copy_of_the_op_library(random_path: Path, tmp_path: Path) -> None:
    """Registering the ops twice would throw inside the linker, with its lock held."""
    copy = shutil.copy(library_path(), tmp_path / "copy.so")
    message = refusal(3, "selftest", "--artifact", random_path, "--ops", copy)  # before the installed one
    assert f"op library {library_path()}: " in message
    assert "the ops of the namespace lensbox are registered already" in message


RECORD = "lensbox-build version=0.1.0 torch=1.4.0+cu92 backends=cpu,cuda"


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ('extern "C" void not_in_this_torch(); void f() { not_in_this_torch(); }', "not_in_this_torch"),
        ('#include <stdexcept>\nstatic int x = (throw std::runtime_error("too bad"), 1);', "too bad"),
        (f'extern const char record[]; const char record[] = "{RECORD}";', RECORD),
    ],
    ids=["other torch", "throws", "record"],
)
def test_names_a_library_that_cannot_be_opened(
    random_path: Path, tmp_path: Path, source: str, part: str
) -> None:
    (tmp_path / "library.cpp").write_text(source)
    library = tmp_path / "library.so"
    compiler = os.environ.get("CXX", "c++")
    programs.run(compiler, "-shared", "-fPIC", "-o", library, tmp_path / "library.cpp")
    alone = programs.run(
        built_runner(), "selftest", "--artifact", random_path, "--ops", library, code=3
    ).stderr
    for message in (alone, refusal(3, "selftest", "--artifact", random_path, "--ops", library)):
        for word in (str(library), f"torch {torch.__version__[:4]}", part):
            assert word in message


def test_finds_the_op_library_beside_the_program(
    random_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LENSBOX_OPS_LIBRARY", raising=False)
    program = shutil.copy2(built_runner(), tmp_path)
    shutil.copy2(library_path(), tmp_path / "liblensbox_ops.so")
    programs.run(program, "selftest", "--artifact", random_path)


class Printing(Brightest):
    """A detector that prints a line when it is called."""

    def preprocess(self, images: list[Tensor], windows: Tensor | None) -> tuple[Tensor, Tensor]:
        print("preprocess was called")
        canvases, geometry = fit_to_canvases(images, windows, 64, 64, 1, 7)
        return canvases, geometry


def test_prints_of_an_artifact_go_to_stderr(tmp_path: Path) -> None:
    path, photo = tmp_path / "printing.pt", tmp_path / "photo.png"
    PIL.Image.new("L", (8, 8)).save(photo)
    save_artifact(Printing(), path)
    done = run("detect", "--artifact", path, "--image", photo, code=0)
    assert "preprocess was called" in done.stderr
    assert json.loads(done.stdout)["images"][0]["file"] == str(photo)
