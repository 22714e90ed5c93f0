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
SUFFIXES = ("pt", "pt2", "onnx")

pytestmark = pytest.mark.skipif("LENSBOX_ARM" not in os.environ, reason="make test-arm runs these tests")


def on_arm(root: Path, *command: object) -> Ended:
    """Run an ARM program, which finds the files of its system below `root`."""
    return run("qemu-aarch64", "-cpu", "max", "-L", root, *command, timeout=3600)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root folder of a device: glibc, and the files that describe the processor."""
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


def runner(device: Path, *words: object) -> dict[str, object]:
    """Run the program of the device folder; return the document that it prints."""
    printed = on_arm(device, ARM / "device/bin/lensbox_runner", *words).stdout
    document: dict[str, object] = json.loads(printed)
    return document


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_self_test_passes(device: Path, suffix: str) -> None:
    report = runner(device, "selftest", "--artifact", ARM / f"artifacts/detector.{suffix}")
    assert report["passed"] is True
    assert isinstance(report["max_box_error"], float)
    assert report["max_box_error"] < 1e-4


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_finds_the_boxes_of_python(device: Path, suffix: str) -> None:
    artifact = ARM / f"artifacts/detector.{suffix}"
    made = sorted((REPOSITORY / "artifacts/photos").glob("*.[jp][pn]g"))  # by make demo
    photographs = [REPOSITORY / "docs/demo.jpg", *made]
    images = runner(device, "detect", "--artifact", artifact, "--image", *photographs)["images"]
    assert isinstance(images, list)
    for image, expected in zip(images, load_artifact(artifact).detect_files(photographs), strict=True):
        assert not isinstance(expected, Exception)
        assert len(expected.boxes) > 0
        for key, values, tolerance in (("box", expected.boxes, 1e-4), ("score", expected.scores, 1e-6)):
            found = torch.tensor([detection[key] for detection in image["detections"]])
            torch.testing.assert_close(found, values, rtol=0, atol=tolerance)


def test_the_ops_give_the_same_bits() -> None:
    """All filters and fits, OpenCV's in 400 sizes; NMS; losses with their gradients."""
    here = run(ARM / "dump-here/dump_ops").stdout.splitlines()
    there = on_arm(ARM / "sysroot", ARM / "dump/dump_ops").stdout.splitlines()
    assert len(here) > 16_000
    assert [pair for pair in zip(here, there, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("name", ["bin/lensbox_runner", "lib/liblensbox_ops.so"])
def test_no_instruction_fuses_a_product_and_a_sum(name: str) -> None:
    code = run("aarch64-linux-gnu-objdump", "--disassemble", ARM / "device" / name).stdout
    assert re.search(r"\tfmul\t", code)
    assert re.findall(r".*\tf(?:n?m(?:add|sub)|ml[as])\t.*", code) == []
