"""Loading, self-test and warm-up of an artifact."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from services import Encode

import lensbox.serve.loading
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.detect.self_test import SelfTestReport
from lensbox.runtime.images.gpu_jpeg import coded_photo
from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.jobs import CodedJob, DetectJob
from lensbox.serve.errors import StartupError
from lensbox.serve.loading import load_model
from lensbox.serve.models.files import read_content
from lensbox.serve.settings import Settings


def test_threads_are_those_of_the_container(
    artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, content = torch.get_num_threads(), read_content(artifact_path)
    for usable, threads in ((3, 3), (9, 5)):
        torch.set_num_threads(5)
        monkeypatch.setattr("lensbox.serve.loading.usable_cpus", lambda usable=usable: usable)
        with pytest.raises(StartupError):  # the number is set before anything is loaded
            load_model(Settings(artifact_path, device="cpu", ops=(tmp_path / "no.so",)), content)
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)


def test_a_failed_self_test_is_refused(artifact_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = SelfTestReport(False, ["loss differ"], 0.0, 0.0, 0.0)
    monkeypatch.setattr(Artifact, "self_test", lambda _: report)
    with pytest.raises(StartupError, match="failed its self-test on cpu: loss differ"):
        load_model(Settings(artifact_path, device="cpu"), read_content(artifact_path))


def test_checks_the_key_loads_op_libraries_and_warms_up(
    artifact_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It warms up each batch size, and every number of channels, with whole and with reduced photographs."""
    asked: list[Any] = []
    photos: list[tuple[int, bool, int]] = []
    loading, content = lensbox.serve.loading, read_content(artifact_path)
    for name in ("check_signature", "load_op_libraries"):
        monkeypatch.setattr(loading, name, lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(loading, "load_artifact_bytes", lambda *_: artifact)
    # Graphs have the artifact's own thresholds, because none are given.
    monkeypatch.setattr(Artifact, "capture", lambda _, *arguments: asked.append(arguments))
    detect_images, losses = Artifact.detect_images, []

    def detect(own: Artifact, given: Sequence[Photo]) -> Any:
        photos.extend((photo.pixels.shape[0], photo.is_whole, len(given)) for photo in given)
        return detect_images(own, given)

    monkeypatch.setattr(Artifact, "detect_images", detect)
    monkeypatch.setattr(Artifact, "loss", lambda _, predictions, targets: losses.append(predictions.dim()))
    key, ops = Path("release.key.pub"), (Path("a.so"),)
    load_model(Settings(artifact_path, device="cpu", public_key=key, ops=ops, max_batch=6), content)
    file = artifact_path.read_bytes()
    assert asked == [(artifact_path, file, content.signature, key), (ops,), ([1, 2, 4, 6],)]
    assert {size for _, _, size in photos} == {1, 2, 4, 6}
    kinds = {(channels, is_whole) for channels in (1, 3, 4) for is_whole in (True, False)}
    assert {(channels, is_whole) for channels, is_whole, _ in photos} == kinds
    assert set(losses) == {2, 3}


def test_an_onnx_file_is_served_on_the_cpu(onnx_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # as "auto" would find a GPU
    loaded = load_model(Settings(onnx_path, device="auto"), read_content(onnx_path))
    assert loaded.device == torch.device("cpu")
    assert not loaded.decodes_jpeg


@pytest.mark.gpu
def test_gpu_decodes_jpeg_files_as_the_cpu(artifact_path: Path, encode: Encode) -> None:
    with torch.inference_mode():
        artifact = load_model(Settings(artifact_path, device="cuda"), read_content(artifact_path))
        if not artifact.decodes_jpeg:
            pytest.skip("needs nvJPEG and a GPU with a JPEG decoder in hardware")
        files = [encode("JPEG"), encode("JPEG", orientation=6), encode("JPEG", quality=20)]
        jobs = []
        for file in [*files, files[0][:1500] + files[0][1600:]]:  # the header of the last one is whole
            photo = coded_photo(file, artifact.metadata.canvas, artifact.reading())
            assert photo is not None
            jobs.append(CodedJob.of((0.01, None), photo))
        *found, damaged = CodedJob.fetch(artifact, jobs, CodedJob.launch(artifact, jobs))
        expected = artifact.detect_images([artifact.read_photo(file) for file in files], 0.01)
    assert damaged is None
    for one, wanted in zip(found, expected, strict=True):
        assert one is not None
        np.testing.assert_allclose(one.boxes, wanted.boxes, rtol=0, atol=0.01)


@pytest.mark.gpu
def test_batches_of_requests_run_in_graphs(artifact_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = 0
    replay = torch.cuda.CUDAGraph.replay

    def count(graph: torch.cuda.CUDAGraph) -> None:
        nonlocal replayed
        replayed += 1
        replay(graph)

    with torch.inference_mode():
        artifact = load_model(
            Settings(artifact_path, device="cuda", max_batch=6), read_content(artifact_path)
        )
        monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", count)
        photo = Photo.of(torch.zeros(1, 20, 30, dtype=torch.uint8))
        for size in range(1, 7):
            jobs = [DetectJob((None, None), photo)] * size
            DetectJob.fetch(artifact, jobs, DetectJob.launch(artifact, jobs))
    assert replayed == 6
