"""The wheel, built as a user would build it, in an environment that knows nothing of this checkout."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from built_runner import REPOSITORY

pytest.importorskip("scikit_build_core", reason="the wheel's build backend is not installed")

_PROGRAM = """
import sys
import torch
import lensbox.ops
from lensbox.runtime import load_artifact

boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0]])
assert abs(float(lensbox.ops.giou(boxes, boxes)) - 1) < 1e-6
artifact = load_artifact(sys.argv[1])
assert artifact.self_test().passed
print(lensbox.ops.library_path())
print(load_artifact.__code__.co_filename)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Below build/, where an earlier build has left its object files: compiling anew takes minutes.
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [*command, "--wheel-dir", folder, REPOSITORY], check=True, capture_output=True, timeout=900
    )
    (path,) = folder.glob("lensbox-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel, and with torch and the other packages of this one.

    Those are found through a path file. The path files among them, such as an editable install's, are not
    read, so that lensbox can come from the wheel alone.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(folder)}))
    install = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install")
    subprocess.run([*install, "--no-deps", "--no-index", wheel], check=True, capture_output=True, timeout=300)
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def _run(*command: "str | Path", cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, env={})
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_wheel_holds_every_folder_typed_and_no_sources(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.split("/")[1] for name in names if name.startswith("lensbox/")}
    assert folders == {path.name for path in (REPOSITORY / "src" / "lensbox").iterdir()}
    assert all(f"lensbox/{folder}/py.typed" in names for folder in folders)
    # The benchmarks compile sources of their own when they run.
    sources = [name for name in names if name.endswith((".cpp", ".cu", ".cuh", ".h", "CMakeLists.txt"))]
    assert {Path(name).parent for name in sources} == {Path("lensbox/bench/csrc")}
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"lensbox"}


def test_the_installed_wheel_runs_ops_and_artifacts(
    environment: Path, artifact_path: Path, tmp_path: Path
) -> None:
    assert _run(environment / "lensbox", "--version", cwd=tmp_path).startswith("lensbox ")
    output = _run(environment / "python", "-c", _PROGRAM, artifact_path, cwd=tmp_path)
    for path in output.split():
        assert Path(path).is_relative_to(environment.parent)
