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
from unusual_detectors import AsManySlotsAsNeeded, Deciding, FittingItsOwnWay, LosingItsOwnWay
from user_detectors import Brightest, Landmarks, RedAndBlue
from wrong_models import wrong_in_batches_of

from lensbox.common.errors import ArtifactError
from lensbox.export.cli import export
from lensbox.export.formats import plain_nms
from lensbox.export.formats import program as program_format
from lensbox.export.pipeline import save_artifact
from lensbox.export.verify.reference import BATCHES, comparison_canvases
from lensbox.model import Detector
from lensbox.model.protocol_check import named
from lensbox.ops import pairwise_giou
from lensbox.runtime import load_artifact
from lensbox.runtime.formats.program import ProgramModel, quiet_export

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

    def test_torchs_own_decompositions_take_it(self, program_path: Path, canvases: Tensor) -> None:
        with quiet_export():
            program = torch.export.load(program_path)
            decomposed = program.run_decompositions()
        arguments = canvases, *map(torch.tensor, THRESHOLDS)
        expected = program.module()(*arguments)
        found = decomposed.module()(*arguments)
        assert all(map(torch.equal, found, expected))
        assert int(expected[2].sum()) > 20


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
    @pytest.fixture
    def exported_before(self, program_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In place of torch.export: a program that is there, of the same detector."""
        with quiet_export():
            program = torch.export.load(program_path)
        monkeypatch.setattr(program_format, "decomposed", lambda *_: program)

    @pytest.mark.usefixtures("exported_before")
    @pytest.mark.parametrize("batch", [1, 7])
    def test_a_graph_that_is_wrong_in_batches_of_one_size(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
    ) -> None:
        monkeypatch.setattr(ProgramModel, "run", wrong_in_batches_of(batch, ProgramModel.run))
        with pytest.raises(
            ArtifactError, match=f"fails its self-test|does not find .* in batches of {batch}\\b"
        ):
            save_artifact(colors(), tmp_path / "detector.pt2", plain_ops=True, kind="program")
        assert not list(tmp_path.iterdir())

    def test_suppression_that_is_wrong(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        overlapping = plain_nms._overlapping
        monkeypatch.setattr(plain_nms, "_overlapping", lambda boxes, least: overlapping(boxes, least * 1.2))
        with pytest.raises(ArtifactError, match=r"detector.pt2 (fails its self-test|does not find)"):
            save_artifact(colors(), tmp_path / "detector.pt2", plain_ops=True, kind="program")
        assert not list(tmp_path.iterdir())

    @pytest.mark.usefixtures("exported_before")
    def test_a_graph_of_other_weights(self, tmp_path: Path) -> None:
        other = colors()
        with torch.no_grad():
            other.colors.weight *= 1.02
        with pytest.raises(ArtifactError, match=r"detector.pt2 (fails its self-test|does not find)"):
            save_artifact(other, tmp_path / "detector.pt2", plain_ops=True, kind="program")

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (Deciding, r"(?s)torch.export cannot make a graph .*\(.*unusual_detectors\.py:\d+\)"),
            (FittingItsOwnWay, "the detector's own preprocess cannot be exported: an exported program holds"),
        ],
    )
    def test_what_has_no_graph_is_named(self, make: type[Brightest], message: str, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match=message):
            save_artifact(make(), tmp_path / "detector.pt2", kind="program")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("make", [Deciding, AsManySlotsAsNeeded])
    def test_a_decision_is_named_without_the_whole_graph(
        self, make: type[Brightest], tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(ArtifactError, match=r"unusual_detectors\.py:\d+\)\n  pixels and thresholds must"):
            save_artifact(make(), tmp_path / "detector.pt2", kind="program")
        assert capfd.readouterr() == ("", "")


class Comparing(Brightest):
    """With an op of Lensbox's that has no plain form."""

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


@pytest.mark.parametrize("make", [Landmarks, LosingItsOwnWay])
def test_further_outputs_and_a_loss_of_its_own(make: type[Detector], tmp_path: Path) -> None:
    detector: Any = make()
    metadata = save_artifact(detector.eval(), tmp_path / "detector.pt2", plain_ops=True, kind="program")
    artifact = load_artifact(tmp_path / "detector.pt2")
    assert artifact.self_test().passed
    pictures = comparison_canvases(detector, (), 32)[0][:3]
    thresholds = metadata.score_threshold, metadata.iou_threshold
    expected = named(detector.detect(pictures, *thresholds))
    torch.testing.assert_close(artifact.detect_named(pictures), dict(expected))
    boxes = torch.ones(1, 4)
    if make is LosingItsOwnWay:
        with pytest.raises(ValueError, match="loss must be asked of the detector's TorchScript artifact"):
            artifact.loss(boxes, boxes)
    else:
        assert artifact.loss(boxes, boxes) == 1.0  # of empty boxes


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

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--format", "onnx", "--plain-ops"], "--plain-ops must come with --format program"),
            (["--format", "program", "--dtype", "float16"], "--dtype must be float32 for an ONNX file or"),
        ],
    )
    def test_wrong_options_are_named(self, arguments: list[str], message: str) -> None:
        ran = CliRunner().invoke(export, arguments)
        assert ran.exit_code == 2
        assert message in ran.output
