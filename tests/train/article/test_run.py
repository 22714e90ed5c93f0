"""`lensbox train --dataset random --model article`: what it shows, what it leaves, how it goes on."""

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
import torch

from lensbox.common.errors import ExitCode, InputError
from lensbox.common.main import main
from lensbox.ops import PackedTargets
from lensbox.train.article.random_data import ArticleConfig, article_config, load_batches
from lensbox.train.article.run import FOLDERS, ArticleRun, Objective, RunOptions
from lensbox.train.errors import ConfigError, TrainingError

CPU = torch.device("cpu")
TINY = ["channels=[1,2,2,2]", "hidden=4", "batch_size=2", "steps=3", "learning_rate=1e-2"]
SMALL = ArticleConfig(channels=(1, 2, 2, 2), hidden=4, batch_size=2, steps=4)
COMMAND = ["train", "--dataset", "random", "--model", "article", "--device", "cpu"]


@pytest.mark.parametrize(("objective", "better"), [("mean GIoU", False), ("1 - GIoU", True)])
def test_one_objective_makes_boxes_worse_and_the_other_better(
    objective: Objective, better: bool, tmp_path: Path
) -> None:
    config = ArticleConfig(
        channels=(1, 1, 2, 2), hidden=4, batch_size=8, steps=40, learning_rate=1e-2, samples=64
    )
    outcome = ArticleRun(objective, config, RunOptions(tmp_path, CPU)).train()
    change = outcome.after - outcome.before
    assert change > 0.03 if better else change < -0.3


def test_the_command_trains_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--output", str(tmp_path), "--set", *TINY, "log_seconds=1e-9"]) == 0
    printed, said = capsys.readouterr()
    header, columns, wrong, right, wrote = printed.splitlines()
    assert header.endswith("3 steps of 2 samples")
    assert columns.split() == ["minimised", "before", "after"]
    assert wrong.startswith("mean GIoU")
    assert right.startswith("1 - GIoU")
    assert wrote.startswith(f"wrote {tmp_path / 'figures.json'} after ")
    assert "minimise 1 - GIoU: 100.0% step      3" in said
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["mean_giou"]["1 - GIoU"]["steps"] == 3
    assert figures["mean_giou"]["1 - GIoU"]["before"] == figures["mean_giou"]["mean GIoU"]["before"]
    for folder in FOLDERS.values():
        lines = [json.loads(line) for line in (tmp_path / folder / "log.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == [1, 2, 3]
        assert (tmp_path / folder / "checkpoint.pt").is_file()

    # Once finished it stays so.
    weights = (tmp_path / FOLDERS["1 - GIoU"] / "checkpoint.pt").read_bytes()
    assert main([*COMMAND, "--output", str(tmp_path), "--resume"]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == printed.splitlines()[:4]
    assert (tmp_path / FOLDERS["1 - GIoU"] / "checkpoint.pt").read_bytes() == weights

    # A run that begins anew leaves no checkpoint of the earlier one in its place.
    assert main([*COMMAND, "--output", str(tmp_path), "--set", *TINY, "steps=1"]) == 0
    assert (tmp_path / FOLDERS["1 - GIoU"] / "earlier_checkpoint.pt").read_bytes() == weights


@pytest.mark.gpu
def test_it_trains_on_a_gpu_in_bfloat16(tmp_path: Path) -> None:
    device = torch.device("cuda")
    config = ArticleConfig(**{**vars(SMALL), "bf16": True})
    run = ArticleRun("1 - GIoU", config, RunOptions(tmp_path, device))
    outcome = run.train()
    assert outcome.steps == 4
    assert next(run.net.parameters()).device.type == "cuda"
    resumed = ArticleRun("1 - GIoU", config, RunOptions(tmp_path, device, resume=True))
    again = resumed.train()
    assert (again.before, again.steps) == (outcome.before, 4)
    assert again.after == pytest.approx(outcome.after, abs=1e-2)


def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = ArticleRun("1 - GIoU", SMALL, RunOptions(tmp_path / "whole", CPU))
    whole.train()
    half = ArticleConfig(**{**vars(SMALL), "steps": 2})
    ArticleRun("1 - GIoU", half, RunOptions(tmp_path / "cut", CPU)).train()
    resumed = ArticleRun("1 - GIoU", SMALL, RunOptions(tmp_path / "cut", CPU, resume=True))
    assert resumed.step == 2
    outcome = resumed.train()
    assert outcome.before == whole.before
    expected = whole.net.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.net.state_dict().items())


def test_a_resumed_run_follows_its_new_learning_rate(tmp_path: Path) -> None:
    ArticleRun("1 - GIoU", SMALL, RunOptions(tmp_path, CPU)).train()
    slower = dataclasses.replace(SMALL, learning_rate=SMALL.learning_rate / 10)
    resumed = ArticleRun("1 - GIoU", slower, RunOptions(tmp_path, CPU, resume=True))
    assert [group["lr"] for group in resumed.optimizer.param_groups] == [slower.learning_rate]


def test_a_checkpoint_of_the_other_objective_is_refused(tmp_path: Path) -> None:
    ArticleRun("mean GIoU", SMALL, RunOptions(tmp_path, CPU)).train()
    with pytest.raises(InputError, match=r"must hold a run of .*1 - GIoU.*, got .*mean GIoU"):
        ArticleRun("1 - GIoU", SMALL, RunOptions(tmp_path, CPU, resume=True))


def test_a_broken_loss_ends_the_run_and_leaves_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ArticleRun(
        "1 - GIoU", ArticleConfig(**{**vars(SMALL), "checkpoint_seconds": 1e-9}), RunOptions(tmp_path, CPU)
    )
    usual, count = run.do_step, itertools.count()

    def breaks(images: torch.Tensor, targets: PackedTargets) -> torch.Tensor:
        loss = usual(images, targets)
        return loss * float("nan") if next(count) == 2 else loss

    monkeypatch.setattr(run, "do_step", breaks)
    with pytest.raises(TrainingError, match="loss must be finite, got nan at step 3"):
        run.train()
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 2


def test_batches_depend_on_seed_and_step_alone() -> None:
    def first_images(seed: int, step: int) -> torch.Tensor:
        return next(load_batches(ArticleConfig(seed=seed, batch_size=2), step, pin_memory=False))[0]

    batches = load_batches(ArticleConfig(batch_size=2), 0, pin_memory=False)
    next(batches)
    images, targets = next(batches)
    assert torch.equal(images, first_images(0, 1))
    assert not torch.equal(images, first_images(0, 2))
    assert not torch.equal(images, first_images(1, 1))
    assert isinstance(targets, PackedTargets)
    assert targets.images == 2


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--data", "photos"], "--data must not be given with --dataset random"),
        (["--teacher", "a.safetensors"], "--teacher must not be given with --dataset random"),
        (["--time-limit", "60"], "--time-limit must not be given"),
        (["--profile"], "--profile must not be given"),
        (["--set", "mosaic_share=1"], "unknown configuration key 'mosaic_share' for the article's net"),
        (["--set", "steps=0"], "steps: must be greater than or equal to 1, got 0"),
        (["--set", "channels=[1,2]"], "channels[2]: Field required, got [1, 2]"),
        (["--resume"], "--resume: there must be a checkpoint in "),
        (["--model", "base"], "--dataset random and --model article must be given together"),
    ],
)
def test_wrong_usage(
    extra: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, "--output", str(tmp_path), *extra]) == ExitCode.USAGE
    assert words in capsys.readouterr().err


def test_several_processes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([*COMMAND, "--output", str(tmp_path)]) == ExitCode.USAGE
    assert "--dataset random trains in one process, got 2 from torchrun" in capsys.readouterr().err


def test_photographs_need_data_and_take_a_model_s_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == ExitCode.USAGE
    assert "Missing option '--data'" in capsys.readouterr().err
    assert main(["train", "--data", "none", "--model", "article"]) == ExitCode.USAGE
    assert "got --dataset photographs and --model article" in capsys.readouterr().err
    assert main(["train", "--data", "none", "--model", "large", "--print-config"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "large"
    assert (
        main(["train", "--data", "none", "--model", "large", "--set", "model=small", "--print-config"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["model"] == "small"


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="seed: must be less than or equal to"):
        article_config({"seed": 2**60})
    next(load_batches(article_config({"seed": 2**42}), 0, pin_memory=False))
    with pytest.raises(ConfigError, match=r"unknown configuration key 'step'.* known keys: seed, channels"):
        article_config({"step": 3})
