import io
import json
import os
import socket
import subprocess
import sys

import pytest
import torch
from PIL import Image

from lensbox.export.artifact_writer import save_artifact
from lensbox.model import DetectorConfig, FaceDetector, save_detector
from lensbox.train.commands.cli import NO_STEP_LIMIT, evaluate_main, train_main
from lensbox.train.evaluation.coco_precision import COCO_FIGURES
from lensbox.train.run.checkpoint import load_checkpoint

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


def strict_json(path):
    """Reads JSON as other programs do, which know no NaN."""

    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


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
    assert "img/s" in printed  # plain lines, for this is no terminal
    assert "average precision at IoU 0.5, 12 images" in printed
    weights = output / "weights.safetensors"
    figures = strict_json(output / "figures.json")
    result = tmp_path / "figures.json"
    scored = ["--data", str(faces_shard), "--weights", str(weights), "--device", "cpu", "--json", str(result)]
    assert evaluate_main(scored) == 0
    assert "16-32 px" in capsys.readouterr().out
    again = strict_json(result)
    assert again["average_precision"] == figures["average_precision"]
    assert again["average_precision"]["tiny4-8"] is None  # no such faces
    assert set(figures["coco"]) == set(COCO_FIGURES)
    assert again["coco"] is None

    # The checkpoint holds the same weights, and COCO's figures come on request.
    scored = ["--data", str(faces_shard), "--checkpoint", str(output / "checkpoint.pt"), "--device", "cpu"]
    assert evaluate_main([*scored, "--coco", "--json", str(result)]) == 0
    assert "AP50" in capsys.readouterr().out
    again = strict_json(result)
    assert again["average_precision"] == figures["average_precision"]
    assert again["coco"] == figures["coco"]


def test_a_resumed_run_keeps_its_configuration(faces_folder, tmp_path, capsys):
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu"]
    assert train_main([*arguments, "--set", *TINY]) == 0
    capsys.readouterr()
    assert train_main([*arguments, "--resume", "--set", "steps=5", "--print-config"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert (config["model"], config["batch_size"], config["steps"]) == ("small", 3, 5)


def test_a_run_ended_by_time_needs_to_know_when_to_end_again(faces_folder, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"steps": NO_STEP_LIMIT}))
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu", "--resume"]
    assert train_main(arguments) == 2
    assert "--time-limit, or --set steps" in capsys.readouterr().err


def test_a_terminal_gets_a_bar_in_the_place_of_lines(faces_folder, tmp_path, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu"]
    assert train_main([*arguments, "--set", *TINY, "log_seconds=0.001"]) == 0
    printed = capsys.readouterr().out
    assert "img/s" not in printed
    assert "wrote" in printed
    assert "100.0%|" in stream.getvalue()
    assert "step 3, " in stream.getvalue()


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
        (["--device", "abacus"], 2, "--device must be a device such as cpu"),
        (["--device", "cuda:99"], 2, "--device must be one that this machine has, got cuda:99"),
        (["--set", "model=huge"], 2, "model: name must be one of small, base, large"),
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


RANK = """
import os, sys, torch
from lensbox.train.commands import cli
from lensbox.train.run import run as trainer
real = trainer.TrainStep.draw_views
views = []
def draw_views(self):
    drawn = real(self)
    views.append(drawn.images)
    torch.save((views, [p.detach() for p in self.model.parameters()]), sys.argv[1])
    return drawn
trainer.TrainStep.draw_views = draw_views
if sys.argv[2] != "0":
    options = cli.RunOptions
    cli.RunOptions = lambda **fields: options(**fields, stop_after=int(sys.argv[2]))
code = cli.train_main(sys.argv[3:])
sys.stdout.flush()
# Not sys.exit: torch 2.13's gloo threads now and then abort the teardown, when all is done.
os._exit(code)
"""


def run_two_processes(data, output, *extra, stop_after=0):
    """Trains in two gloo processes as torchrun starts them. Returns what each printed, the views that it drew
    and the weights that it drew the last ones with."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    output.mkdir(exist_ok=True)
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
        arguments = ["--data", str(data), "--output", str(output), "--device", "cpu", *extra, "--set", *TINY]
        command = [sys.executable, "-c", RANK, str(output / f"rank{rank}.pt"), str(stop_after), *arguments]
        processes.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    return [(text, *torch.load(output / f"rank{rank}.pt")) for rank, text in enumerate(outputs)]


def test_two_processes_train_one_model_and_resume_it(faces_folder, tmp_path):
    """Both have the same weights and views of their own, before an interruption and after it; the first one
    writes; and the interrupted run ends as the whole one."""
    (text, views, weights), (other_text, other_views, other_weights) = run_two_processes(
        faces_folder, tmp_path / "whole"
    )
    assert all(torch.equal(a, b) for a, b in zip(weights, other_weights, strict=True))
    assert len(views) == len(other_views) == 3
    assert not any(torch.equal(a, b) for a, b in zip(views, other_views, strict=True))
    assert "wrote" in text
    assert "wrote" not in other_text

    run_two_processes(faces_folder, tmp_path / "cut", stop_after=1)
    resumed = run_two_processes(faces_folder, tmp_path / "cut", "--resume")
    for (_, later, _), expected in zip(resumed, (views, other_views), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(later, expected[1:], strict=True))
    one, two = (load_checkpoint(tmp_path / name / "checkpoint.pt")["step"] for name in ("whole", "cut"))
    assert one["step"] == two["step"] == 3
    for part in ("model", "average"):
        assert all(torch.equal(value, two[part][name]) for name, value in one[part].items()), part
