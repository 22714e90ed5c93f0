"""Settings and fixtures of all tests. LENSBOX_REQUIRE_... make a missing GPU, browser or runner a failure."""

import fcntl
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# One thread, here and in every process that tests start: small tensors gain nothing from more, and on a busy
# machine OpenMP's waiting threads slow each other down a hundredfold. Must be set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with SIGINT ignored, and so would the tests start every program.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# torch is imported late: the process that only hands out the tests never needs it.
import pytest
from programs import Lensbox, missing_for_browser, runner_onnxruntime

if TYPE_CHECKING:
    import torch

    from lensbox.model import FaceDetector

REQUIRE_GPU = os.environ.get("LENSBOX_REQUIRE_GPU") == "1"

# A search for garbage goes through all objects of torch and of the tests' packages, for a third of a second.
# None is made until the tests are collected; later searches leave out what exists by then.
gc.disable()

# torch's compiler logs itself in hundreds of lines, which pytest would show with every failure.
logging.getLogger("torch.__trace").addFilter(lambda record: False)


def _gpu_is_usable() -> bool:
    import torch

    from lensbox.ops import library_path, read_build_info

    return torch.cuda.is_available() and "cuda" in read_build_info(library_path()).backends


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names long values by their length: pytest puts a test's name into the environment of child processes,
    which Linux refuses from 128 KiB on."""
    if isinstance(val, (str, bytes)) and len(val) > 100:
        return f"{argname}_of_{len(val)}"
    return None


# These begin first, in this order: no worker is then left with a long file at the end, or waits for the
# package that the first file compiles. `pytest --durations=0` has the times.
LONGEST = (
    "tests/export/formats/test_aoti.py",
    "tests/cpp_runtime/test_installed_library.py",
    "tests/packaging/",
    "tests/test_pages.py",
    "tests/cli/test_detect.py",
    "tests/train/run/",
    "tests/export/",
    "tests/examples/",
    "tests/runtime/formats/",
    "tests/serve/processes/",
    "tests/serve/test_cli.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of GPUs, a quarter of all, where there is none. Sort the others."""
    if not REQUIRE_GPU and not _gpu_is_usable():
        left_out = [item for item in items if item.get_closest_marker("gpu") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("gpu") is None]
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Return the index of the item's file among the longest, or their number."""
    return next((at for at, path in enumerate(LONGEST) if item.nodeid.startswith(path)), len(LONGEST))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and not _gpu_is_usable():
        pytest.fail("LENSBOX_REQUIRE_GPU=1, but there is no NVIDIA GPU, or no op library built with CUDA")
    for marker, missing_for in (("browser", missing_for_browser), ("onnx_runner", _missing_for_onnx_runner)):
        if item.get_closest_marker(marker) is not None and (missing := missing_for()):
            variable = f"LENSBOX_REQUIRE_{marker.upper()}"
            if os.environ.get(variable) == "1":
                pytest.fail(f"{variable}=1, but this test needs {missing}")
            pytest.skip(f"needs {missing}")


def _missing_for_onnx_runner() -> str:
    return "" if runner_onnxruntime() else "a lensbox_runner with onnxruntime"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> "torch.device":
    """The CPU, and the GPU where there is one."""
    import torch

    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    # Without a GPU, `torch.manual_seed` formats the stack three times, longer than most tests take.
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    seed(20261120)


@pytest.fixture
def new_gpu_float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the test choose the precision of float32 on GPUs, as the first artifact of a process does."""
    import torch

    monkeypatch.setattr("lensbox.runtime.device._first", None)
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, products.allow_tf32
    yield
    torch.set_float32_matmul_precision("highest")  # of CPUs, too: later tests of this process rely on that
    convolutions.allow_tf32, products.allow_tf32 = before


@pytest.fixture
def lensbox(capfd: pytest.CaptureFixture[str]) -> Lensbox:
    """Run a command in this process, check its exit code, and return standard output and standard error."""
    from lensbox.cli.main import main

    def run(*words: object, code: int = 0) -> tuple[str, str]:
        capfd.readouterr()
        assert main(list(map(str, words))) == code
        printed, said = capfd.readouterr()
        return printed, said

    return run


# Detectors and their artifacts, made once for all test processes of a run. Imports wait for the first use.

Make = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return a function that makes a file of this name, unless another test process has made it."""
    folder = tmp_path_factory.getbasetemp()
    if folder.name.startswith("popen-"):  # pytest-xdist's folder of one process
        folder = folder.parent

    def make_once(name: str, make: Callable[[Path], object]) -> Path:
        path = folder / "made" / name
        path.parent.mkdir(exist_ok=True)
        with path.with_name(f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                make(path)
        return path

    return make_once


@pytest.fixture(scope="session")
def detector() -> "FaceDetector":
    from small_detectors import varied_detector

    return varied_detector(spread=0.2)


def _export(detector: "FaceDetector", path: Path, kind: str) -> None:
    from lensbox.export.pipeline import save_artifact

    save_artifact(detector, path, score_threshold=0.25, iou_threshold=0.4, kind=kind)


def _exported(name: str, kind: str) -> Callable[..., Path]:
    """Return a fixture that exports the detector."""

    def path(detector: "FaceDetector", made_once: Make) -> Path:
        return made_once(name, lambda path: _export(detector, path, kind))

    return pytest.fixture(path, scope="session")


artifact_path = _exported("detector.pt", "torchscript")
onnx_path = _exported("detector.onnx", "onnx")
program_path = _exported("program.pt2", "program")


@pytest.fixture(scope="session")
def package_path(detector: "FaceDetector", made_once: Make) -> Path:
    """Compile the same detector for the CPU, in half the time of an export of a user."""
    from torch._inductor import config

    # Compiling torch's headers in advance pays off from the second network on.
    quick = {"aot_inductor.precompile_headers": False, "aot_inductor.compile_wrapper_opt_level": "O0"}
    quick["cpp.vec_isa_ok"] = True  # what /proc/cpuinfo names, without compiling a program for each
    with config.patch(quick):
        return made_once("detector.pt2", lambda path: _export(detector, path, "aoti"))


@pytest.fixture(scope="session")
def random_path(made_once: Make) -> Path:
    """Export a detector with random weights and a low threshold: it finds some boxes in every picture."""
    from small_detectors import save_random_artifact

    return made_once("random.pt", save_random_artifact)


@pytest.fixture(scope="session")
def shipped_path(made_once: Make) -> Path:
    """Export the shipped face detector."""
    from lensbox.export.pipeline import save_artifact
    from lensbox.model import load_detector

    return made_once("shipped.pt", lambda path: save_artifact(load_detector(), path))


@pytest.fixture(scope="session")
def url(random_path: Path) -> Iterator[str]:
    """The address of a service that is ready."""
    from serve_process import running_service

    with running_service(random_path) as url:
        yield url


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three photographs, one rotated by EXIF, and one in a subfolder. Others are hidden or behind a link."""
    from picture_files import encoded, exif, jpeg_with_exif, noise

    folder = tmp_path_factory.mktemp("photos")
    noise("RGB", 300, 200).save(folder / "b.jpg")
    noise("RGB", 120, 260).save(folder / "a.PNG")
    (folder / "turned.jpg").write_bytes(jpeg_with_exif(encoded(noise("RGB", 640, 480)), exif(6)))
    for name in ("below", ".git"):
        (folder / name).mkdir()
        noise("RGB", 90, 90).save(folder / name / "c.webp")
    (folder / "link").symlink_to(folder / "below")
    (folder / "notes.txt").write_text("no image")
    (folder / ".hidden.jpg").write_text("no image")
    return folder
