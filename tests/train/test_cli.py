import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from lensbox.export.artifact import save_artifact
from lensbox.model import DetectorConfig, FaceDetector, save_detector
from lensbox.train.checkpoint import load_checkpoint
from lensbox.train.cli import evaluate_main, train_main

TINY = [
    "model=small",
    "steps=3",
    "batch_size=3",
    "compile=false",
    "bf16=false",
    "max_targets=8",
    "max_ignored=8",
    "workers=2",
]


def test_trains_then_evaluates(faces_folder, faces_shard, tmp_path, capsys):
    output = tmp_path / "run"
    arguments = [
        "--data",
        str(faces_folder),
        "--val",
        str(faces_shard),
        "--output",
        str(output),
        "--tensorboard",
    ]
    assert train_main([*arguments, "--device", "cpu", "--set", *TINY]) == 0
    printed = capsys.readouterr().out
    assert "12 photographs decoded" in printed
    assert "average precision at IoU 0.5, 12 images" in printed
    weights = output / "weights.safetensors"
    figures = json.loads((output / "figures.json").read_text())
    result = tmp_path / "figures.json"
    scored = ["--data", str(faces_shard), "--weights", str(weights), "--device", "cpu", "--json", str(result)]
    assert evaluate_main(scored) == 0
    assert "16-32 px" in capsys.readouterr().out
    again = json.loads(result.read_text())["average_precision"]
    assert again["all>=8"] == pytest.approx(figures["average_precision"]["all>=8"], nan_ok=True)


def test_profile(faces_folder, tmp_path, capsys):
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu", "--profile"]
    assert train_main([*arguments, "--set", *TINY]) == 0
    printed = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines()[-5:])
    assert 0 < float(printed["loss_share"]) < 1
    assert float(printed["images_per_second"]) > 0
    assert not (tmp_path / "weights.safetensors").exists()


def test_evaluates_an_artifact_like_its_weights(faces_shard, tmp_path, capsys):
    torch.manual_seed(0)
    detector = FaceDetector(DetectorConfig.named("small")).eval()
    save_detector(detector, tmp_path / "w.safetensors")
    save_artifact(detector, tmp_path / "d.pt")
    results = []
    for what, file in (("--weights", "w.safetensors"), ("--artifact", "d.pt")):
        result = tmp_path / f"{what}.json"
        arguments = ["--data", str(faces_shard), what, str(tmp_path / file), "--device", "cpu"]
        assert evaluate_main([*arguments, "--json", str(result)]) == 0
        results.append(json.loads(result.read_text())["average_precision"])
    assert results[0] == pytest.approx(results[1], abs=1e-6, nan_ok=True)


def test_report(faces_shard, tmp_path, capsys):
    detector = FaceDetector(DetectorConfig.named("small"))
    save_detector(detector, tmp_path / "w.safetensors")
    arguments = ["--data", str(faces_shard), "--weights", str(tmp_path / "w.safetensors"), "--device", "cpu"]
    assert evaluate_main([*arguments, "--report", str(tmp_path / "report")]) == 0
    with Image.open(tmp_path / "report" / "misses.png") as picture:
        assert picture.size[0] == 6 * 512
    with Image.open(tmp_path / "report" / "precision_recall.png") as picture:
        assert picture.size == (720, 600)
    assert (tmp_path / "report" / "false_alarms.png").is_file()
    assert "wrote" in capsys.readouterr().out


def test_contact_sheet(faces_folder, tmp_path, capsys):
    sheet = tmp_path / "sheet.png"
    arguments = ["--data", str(faces_folder), "--device", "cpu", "--contact-sheet", str(sheet)]
    assert train_main([*arguments, "--set", *TINY, "batch_size=10"]) == 0
    assert "2 mosaics, 3 whole photographs, 5 crops" in capsys.readouterr().out
    with Image.open(sheet) as picture:
        assert picture.size == (8 * 256, 2 * 256)
        green = sum(count for count, color in picture.getcolors(1 << 24) if color == (60, 255, 90))
    assert green > 500


@pytest.mark.parametrize(
    ("extra", "code", "words"),
    [
        (["--set", "stepz=3"], 2, "unknown configuration key 'stepz'"),
        (["--time-limit", "0"], 2, "--time-limit must be above 0"),
        (["--resume", "--set", *TINY], 2, "checkpoint must be a file"),
        (["--config", "absent.yaml"], 2, "absent.yaml"),
    ],
)
def test_wrong_usage(faces_folder, tmp_path, capsys, extra, code, words):
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu", *extra]
    assert train_main(arguments) == code
    assert words in capsys.readouterr().err


def test_bad_data_is_skipped_or_stops_a_strict_run(faces_folder, tmp_path, capsys):
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    good = next((faces_folder / "images" / "other").glob("*.png"))
    (data / "images" / "good.png").write_bytes(good.read_bytes())
    (data / "images" / "bad.jpg").write_bytes(b"nothing")
    (data / "x_bbx_gt.txt").write_text("good.png\n2\n5 5 30 30\n1 2 3\nbad.jpg\n1\n5 5 30 30\n")
    arguments = ["--data", str(data), "--device", "cpu", "--contact-sheet", str(tmp_path / "s.png")]
    assert train_main([*arguments, "--set", *TINY]) == 0
    printed = capsys.readouterr().out
    assert "x_bbx_gt.txt:4: a box needs at least x y w h" in printed
    assert "x_bbx_gt.txt:5: image bad.jpg cannot be read" in printed
    assert train_main([*arguments, "--strict", "--set", *TINY]) == 4
    assert "x_bbx_gt.txt:4" in capsys.readouterr().err
    assert train_main(["--data", str(tmp_path / "absent"), "--device", "cpu"]) == 4


def test_evaluate_refuses_absent_weights(faces_shard, tmp_path, capsys):
    absent = tmp_path / "absent.safetensors"
    assert evaluate_main(["--data", str(faces_shard), "--weights", str(absent), "--device", "cpu"]) == 2
    assert "absent.safetensors" in capsys.readouterr().err


def test_two_processes_train_one_model(faces_folder, tmp_path):
    """Two gloo processes as torchrun starts them: both end with the same weights, the first one writes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = (
        "import sys, torch; from lensbox.train import trainer, cli\n"
        "real = trainer.TrainStep.run\n"
        "def run(self, progress):\n"
        "    real(self, progress)\n"
        "    torch.save([p.detach() for p in self.model.parameters()], sys.argv[1])\n"
        "trainer.TrainStep.run = run\n"
        "sys.exit(cli.train_main(sys.argv[2:]))\n"
    )
    processes = []
    for rank in range(2):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        arguments = ["--data", str(faces_folder), "--output", str(tmp_path / "run"), "--device", "cpu"]
        command = [sys.executable, "-c", code, str(tmp_path / f"rank{rank}.pt"), *arguments, "--set", *TINY]
        processes.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    one, other = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    state = load_checkpoint(Path(tmp_path / "run" / "checkpoint.pt"))["step"]
    assert state["step"] == 3
    assert "wrote" in outputs[0]
    assert "wrote" not in outputs[1]
