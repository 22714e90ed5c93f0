"""Load an artifact, run its self-test, and warm it up."""

import io
from collections.abc import Sequence
from contextlib import closing

import PIL.Image
import torch

from lensbox.common.machine import keep_freed_memory
from lensbox.runtime import Artifact, Photo
from lensbox.runtime.device import choose_device, largest_batch
from lensbox.runtime.file.seal import check_signature
from lensbox.runtime.images.gpu_jpeg import coded_photo, decodes_on_gpu
from lensbox.runtime.loading import load_artifact_bytes
from lensbox.runtime.op_library import load_op_libraries
from lensbox.serve.engine.devices import batch_sizes, usable_cpus
from lensbox.serve.engine.jobs import CodedJob
from lensbox.serve.errors import StartupError
from lensbox.serve.models.files import Content, read_content
from lensbox.serve.settings import Settings

# TorchScript compiles nothing for new sizes (`torchscript_call`). The first call makes TorchScript's one
# plan, loads kernels onto a GPU and makes cuDNN's plans. The second call is as fast as later calls.
_WARM_CALLS = 2
_WARM_HEIGHT, _WARM_WIDTH = 480, 640


def load_file(settings: Settings) -> Artifact:
    """Read and load the artifact of the settings. See `load_model`."""
    assert settings.artifact is not None
    with closing(read_content(settings.artifact)) as content:
        return load_model(settings, content)


def load_model(settings: Settings, content: Content) -> Artifact:
    """Load the artifact, run its self-test and warm it up. Call it in the thread that will use it.

    content: the file to load. On a CPU, keep freed memory in the process.
    Raise StartupError, which says what to do, if the device does not exist, the op library or the artifact
    cannot be loaded, or the self-test fails.
    """
    # torch counts the CPUs of the machine, not of the container. Per thread, hence here.
    torch.set_num_threads(min(torch.get_num_threads(), usable_cpus()))
    try:
        if settings.device != "auto" and (device := choose_device(settings.device)).index is not None:
            torch.cuda.set_device(device)  # per thread
        # Parameters of a detector's own loss need gradients, so they must not be inference tensors.
        with torch.inference_mode(False):
            data = content.read()
            if settings.public_key is not None:
                check_signature(content.path, data, content.signature, settings.public_key)
            load_op_libraries(settings.ops)
            artifact = load_artifact_bytes(data, str(content.path), settings.device)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise StartupError(str(error)) from error
    device = artifact.device
    if device.type == "cpu":
        keep_freed_memory()
    report = artifact.self_test()
    if not report.passed:
        failures = "; ".join(report.failures)
        raise StartupError(f"{content.path} failed its self-test on {device}: {failures}")
    artifact.largest_batch = largest = settings.max_batch or largest_batch(device)
    artifact.decodes_jpeg = decodes_on_gpu(device, "auto", largest)
    sizes = batch_sizes(largest)
    artifact.capture(sizes)
    warm_up(artifact, sizes)
    return artifact


def warm_up(artifact: Artifact, sizes: Sequence[int]) -> None:
    """Warm up: call the artifact as requests will, in batches of these sizes, until calls are fast."""
    boxes = torch.tensor([[8.0, 8.0, 24.0, 24.0]])
    for _ in range(_WARM_CALLS):
        for channels in (1, 3, 4):
            pixels = torch.zeros([_WARM_HEIGHT, _WARM_WIDTH, channels], dtype=torch.uint8).permute(2, 0, 1)
            artifact.detect_images([Photo.of(pixels)])
            size = 2 * _WARM_WIDTH, 2 * _WARM_HEIGHT  # a JPEG file decoded at half its size
            artifact.detect_images([Photo(pixels, *size, (0, 0, *size))])
        if "loss" in artifact.metadata.methods:
            artifact.loss(boxes, boxes)
            artifact.loss(boxes[None], boxes[None])
    pixels = torch.zeros([1, _WARM_HEIGHT, _WARM_WIDTH], dtype=torch.uint8)
    for count in sizes:
        artifact.detect_images([Photo.of(pixels)] * count)
    if artifact.decodes_jpeg:
        file = io.BytesIO()
        PIL.Image.new("RGB", (_WARM_WIDTH, _WARM_HEIGHT)).save(file, "JPEG")
        photo = coded_photo(file.getvalue(), artifact.metadata.canvas, artifact.reading(full_size=True))
        if photo is not None:
            jobs = [CodedJob.of((None, None), photo)] * sizes[-1]
            CodedJob.fetch(artifact, jobs, CodedJob.launch(artifact, jobs))
