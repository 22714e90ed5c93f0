"""A missing or unsuitable op library is reported in one readable message."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from programs import run, run_lensbox

from lensbox.ops import OpLibraryError, library_path, read_build_info
from lensbox.ops._loader import LIBRARY_VARIABLE, load


def refusal(library: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the error of loading another library beside the one of this process."""
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library))
    with pytest.raises(OpLibraryError) as caught:
        load()
    return str(caught.value)


def changed_copy(tmp_path: Path, old: bytes, new: bytes) -> Path:
    copy = tmp_path / "liblensbox_ops.so"
    content = library_path().read_bytes()
    assert old in content
    copy.write_bytes(content.replace(old, new))
    return copy


def test_build_info_and_links() -> None:
    """The library needs neither Python nor an absent folder: an empty entry would mean the current folder."""
    info = read_build_info(library_path())
    assert torch.__version__.startswith(info.torch)
    assert re.fullmatch(r"\d+\.\d+\.\d+", info.version)
    assert "cpu" in info.backends
    dynamic = run("readelf", "-d", library_path()).stdout
    libraries = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    assert "libtorch_cpu.so" in libraries
    assert not [name for name in libraries if "python" in name]
    paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
    assert all(entry for path in paths for entry in path.split(":"))


def test_rejects_missing_and_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.so"
    for wanted in ("other.so", LIBRARY_VARIABLE):
        assert wanted in refusal(other, monkeypatch)
    other.write_bytes(b"\x7fELF nothing of ours")
    assert "holds no build record" in refusal(other, monkeypatch)


def test_rejects_a_second_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make sanitize` loads the library that the variable names."""
    copy = shutil.copy(library_path(), tmp_path)
    message = refusal(Path(copy), monkeypatch)
    for part in ("the ops of the namespace lensbox are registered already", str(copy), str(library_path())):
        assert part in message


def test_rejects_a_library_for_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_for = f"torch={read_build_info(library_path()).torch}".encode()
    other = changed_copy(tmp_path, built_for, b"torch=1.99" + b"0" * (len(built_for) - 10))
    message = refusal(other, monkeypatch)
    for part in ("built for torch 1.99", f"installed torch: {torch.__version__}", str(other)):
        assert part in message


def test_a_command_reports_the_words_of_the_linker(tmp_path: Path) -> None:
    other = changed_copy(tmp_path, b"libtorch_cpu.so\0", b"libtorch_xpu.so\0")
    photo = tmp_path / "photo.jpg"
    photo.touch()
    message = run_lensbox("detect", str(photo), code=3, env={LIBRARY_VARIABLE: str(other)}).stderr
    assert message.startswith("lensbox detect: ")
    assert "Traceback" not in message
    for part in ("libtorch_xpu.so", f"installed torch: {torch.__version__}", str(other)):
        assert part in message


@pytest.mark.skipif("cuda" in read_build_info(library_path()).backends, reason="built with CUDA")
def test_without_cuda_the_error_says_how_to_get_it() -> None:
    # A CUDA tensor cannot be made here, but the kernel that it would reach can be called.
    cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    boxes = torch.zeros(1, 4)
    with pytest.raises(
        NotImplementedError, match=r"giou: this liblensbox_ops was built without CUDA.*LENSBOX_CUDA=ON"
    ):
        torch.ops.lensbox.giou.default.redispatch(cuda, boxes, boxes, 1e-7)
