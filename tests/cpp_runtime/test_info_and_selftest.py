import importlib.metadata
import json
import zipfile
from pathlib import Path

import pytest
import torch
from built_runner import runner_onnxruntime
from cpp_runtime.running import Run


def test_version_is_the_package_version(run: Run) -> None:
    result = run("--version")
    torch_version = torch.__version__.split("+")[0]
    version = importlib.metadata.version("lensbox")
    assert result.code == 0
    onnxruntime = runner_onnxruntime()
    libraries = f"libtorch {torch_version}" + (f", onnxruntime {onnxruntime}" if onnxruntime else "")
    assert result.stdout == f"lensbox_runner {version} ({libraries})\n"


@pytest.mark.parametrize("arguments", [["--help"], ["detect", "--help"]])
def test_help(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.code == 0
    assert "Exit codes" in result.stdout


def test_info_is_the_metadata_and_the_runner_and_needs_no_ops(run: Run, artifact: Path) -> None:
    result = run("info", "--artifact", artifact, ops=None)
    assert result.code == 0, result.stderr
    document = result.json()
    about_runner = document.pop("runner")
    with zipfile.ZipFile(artifact) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("/extra/lensbox.json"))
        assert document == json.loads(archive.read(entry))
    assert about_runner == {
        "version": importlib.metadata.version("lensbox"),
        "libtorch": torch.__version__.split("+")[0],
        "device": "cpu",
        "cuda_available": torch.cuda.is_available(),
    }


@pytest.mark.gpu
def test_selftest_passes_on_the_gpu(run: Run, artifact: Path) -> None:
    result = run("selftest", "--artifact", artifact, "--device", "cuda")
    assert result.code == 0, result.stderr + result.stdout
