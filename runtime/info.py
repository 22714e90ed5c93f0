"""The report of `lensbox info` on an artifact's file, or on this installation."""

import hashlib
import os
import platform
from collections.abc import Callable, Iterator

from lensbox.common.machine import cpu_name, driver_version, package_version
from lensbox.runtime.file.archive import KINDS, open_file

# Optional packages whose versions change results or speed.
PACKAGES = ("numpy", "pillow", "onnxruntime", "fastapi", "uvicorn", "triton", "torchvision")
VARIABLES = (
    "LENSBOX_OPS_LIBRARY",
    "LENSBOX_IMAGES_LIBRARY",
    "CUDA_VISIBLE_DEVICES",
    "ATEN_CPU_CAPABILITY",
    "OMP_NUM_THREADS",
)


def report() -> list[tuple[str, str]]:
    """Return names and values that describe this installation; never raise."""
    return [
        ("lensbox", package_version("lensbox")),
        ("Python", platform.python_version()),
        ("system", f"{platform.platform()}, {platform.libc_ver()[0] or 'libc'} {platform.libc_ver()[1]}"),
        ("CPU", f"{os.cpu_count()} cores, {cpu_name()}"),
        *_described("torch", _torch, f"{package_version('torch')}, cannot be imported"),
        *_described("op library", _op_library, "cannot be used"),
        *_described("GPU", _devices, "cannot be queried"),
        *((package, package_version(package)) for package in PACKAGES),
        *((name, os.environ[name]) for name in VARIABLES if name in os.environ),
    ]


Lines = Iterator[tuple[str, str]]


def _described(name: str, describe: Callable[[], Lines], words: str) -> list[tuple[str, str]]:
    """Return the lines of `describe`, or one line with its error."""
    try:
        return list(describe())
    except Exception as error:  # the report names what cannot be imported or loaded
        return [(name, f"{words}: {' '.join(str(error).split()) or type(error).__name__}")]


def _torch() -> Lines:
    import torch

    yield "torch", torch.__version__
    build = f"CUDA {torch.version.cuda or 'none'}, instructions {torch.backends.cpu.get_cpu_capability()}"
    yield "torch's build", build


def _op_library() -> Lines:
    # Importing the package loads the library.
    from lensbox.ops import library_path, read_build_info

    path = library_path()
    info = read_build_info(path)
    yield "op library", f"{path}, loaded"
    backends = ", ".join(info.backends)
    yield "its build", f"{info.version} for torch {info.torch} ({backends}); {info.build or 'not recorded'}"


def _devices() -> Lines:
    import torch

    if not torch.cuda.is_available():
        yield "GPU", f"no usable GPU (driver {driver_version()})"
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        memory = f"{found.total_memory / 2**30:.0f} GiB, driver {driver_version()}"
        yield f"cuda:{index}", f"{found.name}, compute capability {found.major}.{found.minor}, {memory}"


def describe_artifact(data: bytes, name: str) -> Lines:
    """Yield names and values that describe an artifact's file, in the order of the report.

    The code of the artifact does not run. name: of the file, for messages. Raise ArtifactError.
    """
    file = open_file(data, name)
    metadata, canvas = file.metadata, file.metadata.canvas
    yield "file", f"{name}, {len(data)} bytes"
    yield "format", f"{KINDS[file.kind].title}, metadata of format {metadata.format_version}"
    yield "sha256", hashlib.sha256(data).hexdigest()
    yield "detector", metadata.name
    yield "weights", metadata.weights_sha256
    yield "written by", f"lensbox {metadata.lensbox_version}, torch {metadata.torch_version}"
    order = "gray" if canvas.channels == 1 else canvas.order.upper()
    yield "canvas", f"{canvas.width} x {canvas.height}, {order}, {canvas.fit}, {canvas.filter}"
    if canvas.mean:
        mean, std = (", ".join(f"{number:g}" for number in numbers) for numbers in (canvas.mean, canvas.std))
        yield "numbers", f"mean {mean}, standard deviation {std}"
    yield "photographs", f"orientation {metadata.reading.orientation}"
    yield "thresholds", "score {:g}, IoU {:g}".format(*metadata.thresholds)
    yield "methods", ", ".join(metadata.methods)
    if metadata.classes:
        yield "classes", f"{len(metadata.classes)}: {', '.join(metadata.classes)}"
    for output, extra in metadata.extras.items():
        yield "output", f"{output} {list(extra.shape)}, {extra.kind}"
    yield "precision", metadata.precision.dtype if metadata.precision else "float32"
    yield "operators", ", ".join(schema.split("(")[0] for schema in metadata.ops) or "none of an op library"
    if (made := metadata.compiled) is not None:  # of a package
        words = [made.device, made.gpu_architecture, made.platform, f"torch {made.torch_version}"]
        yield "compiled for", ", ".join(word for word in words if word)
        yield "processor with", " ".join(made.cpu_features)
    yield "self-test", f"{len(metadata.self_test.expected.scores)} detections"
