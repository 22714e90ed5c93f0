"""The command line: usage, --version, --help, info, bench and loss; where the op library is found.

`boxes_json_test.cpp` has all forms of boxes. Detection has files of its own.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import PIL.Image
import programs
import pytest
import torch
from damaged_files import rewritten, with_metadata
from programs import built_runner, runner_onnxruntime
from runner_answers import answer, refusal, run
from small_detectors import Brightest
from torch import Tensor

from lensbox.export import save_artifact
from lensbox.ops import library_path
from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime import load_artifact

MODEL = ["--artifact", "unused.pt"]
DETECT = ["detect", *MODEL]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "subcommand"),
        (["predict", "--image", "x.png"], "no subcommand predict"),
        ([*DETECT, "--image", "a.jpg", "--treshold", "1"], "--treshold"),
        (DETECT, "one of --image and --raw"),
        ([*DETECT, "--image", "x.png", "--raw", "8x8", "gray8"], "got both"),
        ([*DETECT, "--raw", "640", "gray8"], "WIDTHxHEIGHT"),
        ([*DETECT, "--raw", "8x8", "gray8", "--recursive"], "--recursive requires --image"),
        ([*DETECT, "--image", "x.png", "--score-threshold", "1.5"], "--score-threshold"),
        ([*DETECT, "--image", "x.png", "--iou-threshold", "nan"], "got nan"),
        ([*DETECT, "--image", "x.png", "--threads", "0"], "--threads"),
        ([*DETECT, "--image", "x.png", "--orientation", "1"], "--orientation"),
        *(([*DETECT, "--image", "x.png", "--tiles", text], "--tiles") for text in ("big", "512,1")),
        (["bench", *MODEL, "--batch-sizes", "1,0"], "--batch-sizes"),
        (["bench", *MODEL, "--seconds", "nan"], "got nan"),
        (["loss", *MODEL, "--predictions", "a.json"], "--targets"),
        (["loss", *MODEL, "--predictions", "-", "--targets", "-"], "stdin"),
    ],
)
def test_wrong_usage(arguments: list[str], part: str) -> None:
    done = programs.run(built_runner(), *arguments, code=2)
    assert done.stdout == ""
    assert part in done.stderr


def test_version_and_help() -> None:
    onnxruntime = runner_onnxruntime()
    libraries = f"libtorch {torch.__version__.split('+')[0]}, "
    libraries += f"onnxruntime {onnxruntime}" if onnxruntime else "without onnxruntime"
    printed = programs.run(built_runner(), "--version").stdout
    assert printed == f"lensbox_runner {importlib.metadata.version('lensbox')} ({libraries})\n"
    for words in (["--help"], ["detect", "--help"]):
        assert "Exit codes" in programs.run(built_runner(), *words).stdout


def test_info_needs_no_op_library(random_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LENSBOX_OPS_LIBRARY", raising=False)
    document = json.loads(programs.run(built_runner(), "info", "--artifact", random_path).stdout)
    about_runner = document.pop("runner")
    with zipfile.ZipFile(random_path) as archive:
        (entry,) = (name for name in archive.namelist() if name.endswith("/extra/lensbox.json"))
        assert document == json.loads(archive.read(entry))
    assert about_runner == {
        "version": importlib.metadata.version("lensbox"),
        "libtorch": torch.__version__.split("+")[0],
        "device": "cpu",
        "cuda_available": torch.cuda.is_available(),
    }


@pytest.mark.parametrize(
    "options",
    [[], *(pytest.param(["--device", "cuda", *more], marks=pytest.mark.gpu) for more in ([], ["--capture"]))],
)
def test_bench(random_path: Path, options: list[str]) -> None:
    """Check the structure of the document, not the figures."""
    asked = ["--batch-sizes", "1,3", "--callers", "2", "--seconds", "0.01", *options]
    document = answer("bench", "--artifact", random_path, *asked)
    assert document["device"].startswith("cuda" if options else "cpu")
    assert (document["threads"], document["capture"], document["callers"]) == (1, "--capture" in options, 2)
    assert document["libtorch"] == torch.__version__.split("+")[0]
    assert [entry["batch"] for entry in document["batches"]] == [1, 3]
    for entry in document["batches"]:
        assert entry.keys() == {"batch", "whole", "detect"}
        for figures in (entry["whole"], entry["detect"]):
            assert figures["calls"] >= 1
            assert 0 < figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"]
            assert figures["images_per_s"] > 0


# --- loss ---

PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [3, 4, 9, 9]]
TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [0, 0, 0, 0]]


def written(folder: Path, predictions: Any = PREDICTIONS, targets: Any = TARGETS) -> list[object]:
    """Write boxes to files; return the options that name the files."""
    (folder / "predictions").write_text(json.dumps(predictions))
    (folder / "targets").write_text(json.dumps(targets))
    return ["--predictions", folder / "predictions", "--targets", folder / "targets"]


@pytest.mark.parametrize(
    ("artifact", "shape", "device"),
    [
        ("random_path", (4, 4), "cpu"),
        ("random_path", (2, 2, 4), "cpu"),
        ("package_path", (4, 4), "cpu"),
        pytest.param("onnx_path", (4, 4), "cpu", marks=pytest.mark.onnx_runner),
        pytest.param("random_path", (2, 2, 4), "cuda", marks=pytest.mark.gpu),
    ],
)
def test_loss_and_gradient_equal_python(
    artifact: str, shape: tuple[int, ...], device: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(artifact)
    boxes = torch.tensor(PREDICTIONS, dtype=torch.float64).reshape(shape).requires_grad_()
    targets = torch.tensor(TARGETS, dtype=torch.float64).reshape(shape)
    files = written(tmp_path, boxes.tolist(), targets.tolist())
    asked = ["loss", "--artifact", path, "--device", device, *files]
    plain = answer(*asked, "--gradient", tmp_path / "g.json")
    gradient = torch.tensor(json.loads((tmp_path / "g.json").read_text()), dtype=torch.float64)
    loss = load_artifact(path).module.loss(boxes, targets)
    (expected,) = torch.autograd.grad(loss, boxes)
    assert plain == {"loss": pytest.approx(loss.item(), abs=1e-9), "slots": 3}
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(gradient, expected, atol=1e-12 if device == "cpu" else 1e-9, rtol=0)
    assert answer(*asked, "--gradient", "-") == {**plain, "gradient": gradient.tolist()}


@pytest.mark.parametrize("boxes", [[], [[], []], [[0, 0, 0, 0]]])
def test_loss_and_gradient_are_zero_without_slots(boxes: Any, random_path: Path, tmp_path: Path) -> None:
    asked = ["loss", "--artifact", random_path, *written(tmp_path, boxes, boxes)]
    assert answer(*asked, "--gradient", "-") == {"loss": 0.0, "slots": 0, "gradient": boxes}


def test_names_files_that_cannot_be_read_or_written(random_path: Path, tmp_path: Path) -> None:
    asked = ["loss", "--artifact", random_path, *written(tmp_path)]
    absent, link, targets = tmp_path / "absent" / "g.json", tmp_path / "link", tmp_path / "targets"
    assert f"gradient: cannot write the file {absent}" in refusal(4, *asked, "--gradient", absent)
    link.symlink_to(targets)
    message = refusal(2, *asked, "--gradient", link)
    assert "--gradient would be written over the file of --targets" in message
    assert json.loads(targets.read_text()) == TARGETS
    (tmp_path / "predictions").unlink()
    assert "predictions: cannot read the file" in refusal(4, *asked)


def test_a_pipe_stands_for_boxes_and_ends(random_path: Path, tmp_path: Path) -> None:
    _, boxes, *targets = written(tmp_path)
    asked = ["loss", "--artifact", random_path, *targets, "--predictions"]
    loss = answer(*asked, boxes)
    for place in ("-", "/dev/stdin"):
        with subprocess.Popen(["cat", str(boxes)], stdout=subprocess.PIPE) as cat:
            assert answer(*asked, place, stdin=cat.stdout) == loss
    with Path("/dev/zero").open("rb") as zeros:
        for place in ("-", "/dev/zero"):
            message = refusal(4, *asked, place, stdin=zeros)
            assert f"the file {place}: at most 268435456 bytes are accepted" in message
    pipe = tmp_path / "pipe"  # nobody writes to it
    os.mkfifo(pipe)
    assert "must hold boxes as JSON" in refusal(4, *asked, pipe)
    assert "not a file" in refusal(3, "info", "--artifact", pipe)


# --- the op library ---


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
    message = refusal(3, "selftest", "--artifact", random_path, "--ops", library)
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
