"""`examples/custom_op`: a user's op is built, exported with its detector and carried by the file."""

import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import programs
import pytest
import torch
from altered_packages import with_metadata
from built_runner import built_runner, path_with_build_tools
from damaged_files import rewritten
from signing_keys import KEY, public_pem, signature_of

import lensbox.export.cli
from lensbox.artifact.metadata import Library
from lensbox.artifact.signature import signature_path
from lensbox.common.errors import ArtifactError, ExitCode
from lensbox.common.main import main
from lensbox.ops import library_path
from lensbox.runtime import op_library
from lensbox.runtime.loading import load_artifact
from lensbox.runtime.machine import this_platform
from lensbox.runtime.op_library import load_carried_libraries

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_op"
SCRIPT = Path(lensbox.export.cli.__file__).with_name("script_model.py")
LIBRARY = "libexample_ops.so"
Runner = Callable[..., programs.Ended]


def run(*command: object, cwd: Path) -> programs.Ended:
    return programs.run(*command, cwd=cwd, code=None, env={"PATH": path_with_build_tools()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the example with its built library and both artifacts of its README.

    NAME.log holds what the export of NAME said. It compared the file in C++, too.
    """
    folder = tmp_path_factory.mktemp("custom_op") / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("build", "*.pt", "__pycache__"))
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (
        ("cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", prefix),
        ("cmake", "--build", "build"),
    ):
        result = run(*command, cwd=folder)
        assert result.returncode == 0, result.stdout + result.stderr
    for name, options in (("blobs.pt", []), ("blobs_with_op.pt", ["--carry-ops"])):
        options = ["--ops", f"build/{LIBRARY}", *options, "--runner", str(built_runner()), "--output", name]
        result = run(sys.executable, SCRIPT, "--model", "blobs:Blobs", *options, cwd=folder)
        assert result.returncode == 0, result.stderr
        (folder / f"{name}.log").write_text(result.stderr)
    (folder / "key.pub").write_bytes(public_pem(KEY))
    for name in ("blobs.pt", "blobs_with_op.pt"):
        signature_path(folder / name).write_bytes(signature_of((folder / name).read_bytes()))
    return folder


# Run in a new process, as operators cannot be unregistered.
LOAD = """
import sys
from lensbox.common.errors import ArtifactError
from lensbox.runtime import load_artifact
path, key, *libraries = sys.argv[1:]
key = key if key != "unsigned" else None
import torch
for library in libraries:
    torch.ops.load_library(library)
try:
    artifact = load_artifact(path, public_key=key)
except ArtifactError as error:
    raise SystemExit(f"refused: {error}")
image = torch.zeros(1, 96, 128, dtype=torch.uint8)
image[0, 20:33, 40:53] = 250
print(artifact.self_test().passed, artifact.detect_image(image).boxes.round().int().tolist())
print(len(load_artifact(path, public_key=key).metadata.libraries))
"""


def load(folder: Path, *arguments: object) -> programs.Ended:
    return run(sys.executable, "-c", LOAD, *arguments, cwd=folder)


def test_lists_the_schema_and_takes_a_loaded_library(folder: Path) -> None:
    with zipfile.ZipFile(folder / "blobs.pt") as file:
        values = json.loads(next(file.read(name) for name in file.namelist() if "lensbox.json" in name))
    assert "example::peaks(Tensor heat) -> Tensor" in values["ops"]
    assert "libraries" not in values
    result = load(folder, "blobs.pt", "unsigned", f"build/{LIBRARY}")
    assert result.stdout.splitlines()[0].startswith("True [[40, ")
    refused = load(folder, "blobs.pt", "key.pub")
    assert "needs the operator example::peaks(Tensor heat) -> Tensor, which is not reg" in refused.stderr


def test_opens_carried_libraries_of_signed_files_only(folder: Path) -> None:
    result = load(folder, "blobs_with_op.pt", "key.pub")
    assert result.stdout == "True [[40, 20, 53, 33]]\n1\n", result.stderr
    with zipfile.ZipFile(folder / "blobs_with_op.pt") as file:
        carried = _entry(file, f"extra/ops/{LIBRARY}")
        (library,) = json.loads(_entry(file, "extra/lensbox.json"))["libraries"]
    assert carried == (folder / "build" / LIBRARY).read_bytes()
    assert library == {
        "name": LIBRARY,
        "sha256": hashlib.sha256(carried).hexdigest(),
        "torch_version": torch.__version__,
        "platform": this_platform(),
    }
    refused = load(folder, "blobs_with_op.pt", "unsigned")
    assert refused.returncode == 1
    assert f"The artifact carries {LIBRARY}, which is opened only if a public key verifies" in refused.stderr


@pytest.mark.parametrize("name", ["blobs.pt", "blobs_with_op.pt"])
def test_export_compares_in_cpp(name: str, folder: Path) -> None:
    """Load with the given library, or with the one that the file carries."""
    assert "C++ on cpu in batches of 32: boxes within " in (folder / f"{name}.log").read_text()


def _entry(file: zipfile.ZipFile, name: str) -> bytes:
    return next(file.read(entry) for entry in file.namelist() if entry.endswith(f"/{name}"))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("values", "content", "message"),
    [
        ({}, b"?", "with SHA-256 .*, but its bytes have "),
        ({"sha256": "0" * 64}, None, "with SHA-256 0000"),
        ({"name": "other.so"}, None, "holds no entry extra/ops/other.so"),
        ({"platform": "linux-riscv64"}, None, "built for linux-riscv64; th"),
        ({"torch_version": "1.9.0"}, None, "built for torch 1.9.0; insta"),
        (
            {"sha256": digest(b"no library")},
            b"no library",
            f"carries {LIBRARY}, which cannot be opened: .*(invalid|short)",
        ),
    ],
)
def test_rejects_unusable_carried_libraries(
    values: dict[str, str], content: bytes | None, message: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.pt"

    def change(entries: dict[str, bytes]) -> None:
        with_metadata(lambda document: document["libraries"][0].update(values))(entries)
        if content is not None:
            entries.update({name: content for name in entries if "/extra/ops/" in name})

    path.write_bytes(rewritten((folder / "blobs_with_op.pt").read_bytes(), change))
    signature_path(path).write_bytes(signature_of(path.read_bytes()))
    with pytest.raises(ArtifactError, match=message):
        load_artifact(path, public_key=folder / "key.pub")


@pytest.mark.parametrize(
    ("needed", "owner", "message"),
    [
        ("nobody::has_it(Tensor x) -> Tensor", None, "registered aten::relu in this process, without nobody"),
        (None, "other.so", f"carries {LIBRARY}, but another artifact's other.so, with SHA"),
    ],
)
def test_never_loads_a_second_library_of_the_same_operators(
    needed: str | None, owner: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second registration would end the process."""
    if owner is not None:
        other = Library(owner, "1" * 64, torch.__version__, this_platform())
        monkeypatch.setitem(op_library._owners, "aten::relu", other)
    library = Library(LIBRARY, digest(b""), torch.__version__, this_platform())
    schemas = ["aten::relu(Tensor self) -> Tensor", *([needed] if needed else [])]
    with pytest.raises(ArtifactError, match=message):
        load_carried_libraries("a.pt", [library], {LIBRARY: b""}, schemas)


@pytest.fixture
def run_runner(tmp_path: Path) -> Iterator[Runner]:
    """Yield a function that runs the C++ runner with Lensbox's ops; no temporary file may remain."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def run(command: str, artifact: Path, *options: object) -> programs.Ended:
        line = [built_runner(), command, "--artifact", artifact, "--ops", library_path(), *options]
        return programs.run(*line, code=None, env={"TMPDIR": str(temporary)})

    yield run
    assert not list(temporary.iterdir())


def test_cpp_opens_the_carried_library(folder: Path, tmp_path: Path, run_runner: Runner) -> None:
    image = np.zeros((96, 128), np.uint8)
    image[20:33, 40:53] = 250
    photo = tmp_path / "blob.png"
    PIL.Image.fromarray(image).save(photo)
    signed = folder / "blobs_with_op.pt", "--public-key", folder / "key.pub"
    report = run_runner("selftest", *signed)
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["passed"]
    found = run_runner("detect", *signed, "--image", photo)
    (detection,) = json.loads(found.stdout)["images"][0]["detections"]
    assert [round(edge) for edge in detection["box"]] == [40, 20, 53, 33]


def test_cpp_rejects_the_library_of_an_unsigned_file(folder: Path, run_runner: Runner) -> None:
    refused = run_runner("selftest", folder / "blobs_with_op.pt")
    assert (refused.returncode, refused.stdout) == (ExitCode.UNUSABLE, "")
    assert "needs the op example::peaks, which is not registered" in refused.stderr
    assert f"The artifact carries {LIBRARY}" in refused.stderr
    assert "--public-key" in refused.stderr
    alone = run_runner("selftest", folder / "blobs.pt", "--public-key", folder / "key.pub")
    assert alone.returncode == ExitCode.UNUSABLE
    assert "carries" not in alone.stderr


@pytest.mark.parametrize(
    ("library", "message"),
    [("none.so", "must be a shared library, got none.so"), ("blobs.py", "blobs.py cannot be loaded: ")],
)
def test_rejects_other_files_as_libraries(
    library: str,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    arguments = ["--model", "blobs:Blobs", "--ops", library, "--output", "c.pt"]
    assert main(["export", *arguments]) == ExitCode.UNUSABLE
    stderr = capfd.readouterr().err
    assert message in stderr
    assert "Traceback" not in stderr
    assert not (folder / "c.pt").exists()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.exhaustive
def test_cuda_source_compiles(tmp_path: Path) -> None:
    include = Path(torch.__file__).parent / "include"
    stand_in = tmp_path / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    if not (include / stand_in.relative_to(tmp_path)).exists():  # all that a CPU build of torch lacks
        stand_in.parent.mkdir(parents=True)
        stand_in.write_text("#pragma once\n")
    flags = ["-std=c++20", "-arch=sm_80", f"-I{tmp_path}", f"-I{include}"]
    result = run("nvcc", "-c", *flags, EXAMPLE / "peaks.cu", "-o", tmp_path / "peaks.o", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
