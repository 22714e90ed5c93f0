"""The exported program of a detector: what it holds, and that none is written that finds something else."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor
from unusual_detectors import AsManySlotsAsNeeded, Deciding
from user_detectors import Brightest, RedAndBlue

from lensbox.common.errors import ArtifactError
from lensbox.export.cli import export
from lensbox.export.pipeline import save_artifact
from lensbox.export.verify.reference import BATCHES, comparison_canvases
from lensbox.model.protocol_check import named
from lensbox.ops import pairwise_giou
from lensbox.runtime import load_artifact

THRESHOLDS = (0.05, 0.3)


def colors() -> RedAndBlue:
    return RedAndBlue(side=8).eval()


@pytest.fixture(scope="module")
def canvases() -> Tensor:
    return comparison_canvases(colors(), (), 32)[0][4:9]


def graph_text(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/models/model.json"))
        return archive.read(name).decode()


def operators(path: Path) -> set[str]:
    return set(re.findall(r'"target": "(torch\.ops[^"]*)"', graph_text(path)))


class TestContents:
    def test_core_aten_alone(self, program_path: Path) -> None:
        found = operators(program_path)
        assert {"torch.ops.aten.convolution.default", "torch.ops.aten.amax.default"} <= found
        for operator in found:
            overload: Any = torch
            for part in operator.split(".")[1:]:
                overload = getattr(overload, part)
            assert overload.namespace == "aten"
            assert torch.Tag.core in overload.tags, operator

    def test_no_path_of_this_machine(self, program_path: Path) -> None:
        assert not re.findall(r'[^"]*\.py\b', graph_text(program_path))

    def test_metadata(self, program_path: Path) -> None:
        artifact = load_artifact(program_path)
        assert artifact.self_test().passed
        assert artifact.metadata.ops == ()
        assert artifact.metadata.methods == ("preprocess", "detect", "restore", "loss", "detect_named")


IN_TORCH_ALONE = """
import sys, torch
program, questions, answers = sys.argv[1:]
detect = torch.export.load(program).module()
canvases, thresholds = torch.load(questions)
found = [detect(batch, *thresholds) for batch in (canvases[:1], canvases)]
assert not [name for name in sys.modules if name.split(".")[0] == "lensbox"]
assert not hasattr(torch.ops.lensbox, "padded_nms")
torch.save(found, answers)
"""


def test_a_process_with_torch_alone_runs_it(program_path: Path, canvases: Tensor, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.pt", tmp_path / "answers.pt"
    torch.save((canvases, [torch.tensor(value) for value in THRESHOLDS]), questions)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LENSBOX_")}
    environment["PYTHONPATH"] = str(Path(torch.__file__).parents[1])
    command = [sys.executable, "-c", IN_TORCH_ALONE, *map(str, (program_path, questions, answers))]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=600)
    wanted = [named(colors().detect(batch, *THRESHOLDS)) for batch in (canvases[:1], canvases)]
    for found, expected in zip(torch.load(answers), wanted, strict=True):
        for name, value in zip(("boxes", "scores", "counts", "labels"), found, strict=True):
            torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-5)
    assert int(wanted[1]["counts"].sum()) > 20


class TestRefusals:
    @pytest.mark.parametrize("make", [Deciding, AsManySlotsAsNeeded])
    def test_a_decision_is_named_without_the_whole_graph(
        self, make: type[Brightest], tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(ArtifactError, match=r"unusual_detectors\.py:\d+\)\n  pixels and thresholds must"):
            save_artifact(make(), tmp_path / "detector.pt2", kind="program")
        assert capfd.readouterr() == ("", "")


class Comparing(Brightest):
    """A detector with an op of Lensbox that has no plain form."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores, counts = super().detect(images, score_threshold, iou_threshold)
        return boxes, scores * pairwise_giou(boxes, boxes)[:, 0], counts


class TestOperatorsOfALibrary:
    def test_stay_where_plain_ones_are_not_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "detector.pt2"
        metadata = save_artifact(colors(), path, kind="program")
        assert [schema.split("(")[0] for schema in metadata.ops] == [
            "lensbox::letterbox",
            "lensbox::masked_giou_loss",
            "lensbox::padded_nms.tensor_thresholds",
        ]
        assert "torch.ops.lensbox.padded_nms.tensor_thresholds" in operators(path)
        assert load_artifact(path).self_test().passed

    def test_are_refused_where_they_have_no_plain_form(self, tmp_path: Path) -> None:
        path = tmp_path / "detector.pt2"
        with pytest.raises(ArtifactError, match=r"--plain-ops has no form .* of lensbox::pairwise_giou;"):
            save_artifact(Comparing(), path, plain_ops=True, kind="program")
        assert not path.exists()
        assert "lensbox::pairwise_giou" in " ".join(save_artifact(Comparing(), path, kind="program").ops)


class TestCommand:
    @pytest.fixture(autouse=True)
    def detectors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))

    def test_files_of_one_export_agree_and_the_proof_is_stored(self, tmp_path: Path) -> None:
        output = tmp_path / "both.any"
        arguments = ["--model", "user_detectors:Brightest", "--output", str(output), "--plain-ops"]
        formats = ["--format", "program,torchscript"]
        ran = CliRunner().invoke(export, [*arguments, *formats], catch_exceptions=False)
        script, program = tmp_path / "both.pt", tmp_path / "both.program.pt2"
        assert ran.stdout.splitlines() == [str(script), str(program)]
        with zipfile.ZipFile(program) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/extra/lensbox.json"))
            stored = json.loads(archive.read(name))
        metadata = load_artifact(script).metadata
        assert stored["weights_sha256"] == metadata.weights_sha256
        assert [row["batch"] for row in stored["parity"]] == list(BATCHES)
        assert max(row["boxes"] for row in stored["parity"]) < 0.01
