"""Lensbox on 64-bit ARM, under qemu. `make test-arm` builds the programs, in the folder LENSBOX_ARM."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from programs import REPOSITORY, Ended, run

from lensbox.runtime import load_artifact

ARM = Path(os.environ.get("LENSBOX_ARM", ""))
# The folder for a device, with or without libtorch, and the suffix of an artifact.
RUNS = [("device", "pt"), ("device", "pt2"), ("device", "onnx"), ("device-core", "onnx")]

pytestmark = pytest.mark.skipif("LENSBOX_ARM" not in os.environ, reason="make test-arm runs these tests")


def on_arm(root: Path, *command: object) -> Ended:
    """Run an ARM program, which finds the files of its system below `root`."""
    return run("qemu-aarch64", "-cpu", "max", "-L", root, *command, timeout=3600)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root folder of a device's system: glibc, and the files that describe the processor."""
    sysroot, root = ARM / "sysroot", tmp_path_factory.mktemp("device")
    libraries = root / "lib/aarch64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("c", "m", "dl", "rt", "pthread", "util"):
        (source,) = (sysroot / "usr/lib/aarch64-linux-gnu").glob(f"lib{name}.so.[0-9]")
        shutil.copy(source, libraries)
    shutil.copy(sysroot / "usr/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1", root / "lib")
    for folder in ("proc", "sys"):
        shutil.copytree(sysroot / folder, root / folder)
    return root


def runner(system: Path, device: str, *words: object) -> dict[str, object]:
    """Run the program of a device folder; return the document that it prints."""
    printed = on_arm(system, ARM / device / "bin/lensbox_runner", *words).stdout
    document: dict[str, object] = json.loads(printed)
    return document


@pytest.mark.parametrize(("device", "suffix"), RUNS)
def test_the_self_test_passes(system: Path, device: str, suffix: str) -> None:
    report = runner(system, device, "selftest", "--artifact", ARM / f"artifacts/detector.{suffix}")
    assert report["passed"] is True
    assert isinstance(report["max_box_error"], float)
    assert report["max_box_error"] < 1e-4


@pytest.mark.parametrize(("device", "suffix"), RUNS)
def test_finds_the_boxes_of_python(system: Path, device: str, suffix: str) -> None:
    artifact = ARM / f"artifacts/detector.{suffix}"
    made = sorted((REPOSITORY / "artifacts/photos").glob("*.[jp][pn]g"))  # by make demo
    photographs = [REPOSITORY / "docs/demo.jpg", *made]
    images = runner(system, device, "detect", "--artifact", artifact, "--image", *photographs)["images"]
    assert isinstance(images, list)
    for image, expected in zip(images, load_artifact(artifact).detect_files(photographs), strict=True):
        assert not isinstance(expected, Exception)
        assert len(expected.boxes) > 0
        for key, values, tolerance in (("box", expected.boxes, 1e-4), ("score", expected.scores, 1e-6)):
            found = torch.tensor([detection[key] for detection in image["detections"]])
            torch.testing.assert_close(found, values, rtol=0, atol=tolerance)


def test_the_folder_without_libtorch_is_small(system: Path) -> None:
    files = [path for path in (ARM / "device-core").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) <= 45_000_000
    info = runner(system, "device-core", "info", "--artifact", ARM / "artifacts/detector.onnx")
    program = info["runner"]
    assert isinstance(program, dict)
    assert program["libtorch"] is None
    assert program["onnxruntime"]


def test_the_ops_give_the_same_bits() -> None:
    """All filters and fits, OpenCV's in 400 sizes; NMS; losses with their gradients."""
    here = run(ARM / "dump-here/dump_ops").stdout.splitlines()
    there = on_arm(ARM / "sysroot", ARM / "dump/dump_ops").stdout.splitlines()
    assert len(here) > 16_000
    assert [pair for pair in zip(here, there, strict=True) if pair[0] != pair[1]] == []


PROGRAMS = ["device/bin/lensbox_runner", "device-core/bin/lensbox_runner", "device/lib/liblensbox_ops.so"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_instruction_fuses_a_product_and_a_sum(name: str) -> None:
    code = run("aarch64-linux-gnu-objdump", "--disassemble", ARM / name).stdout
    assert re.search(r"\tfmul\t", code)
    assert re.findall(r".*\tf(?:n?m(?:add|sub)|ml[as])\t.*", code) == []
