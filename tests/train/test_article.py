"""`lensbox train --model article`: the random data, both objectives, and the command."""

import json
from pathlib import Path

import pytest
import torch

from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.train.article import ArticleConfig, ArticleRun, FakeDataset, Objective, load_batches
from lensbox.train.errors import TrainingError

CPU = torch.device("cpu")
TINY = ["channels=[1,2,2,2]", "hidden=4", "batch_size=2", "steps=3", "learning_rate=1e-2"]
COMMAND = ["train", "--model", "article", "--device", "cpu"]


def test_fake_dataset_has_the_articles_distribution() -> None:
    data = FakeDataset(600)
    counts = torch.tensor([len(data[i][1]) for i in range(600)]).float()
    # n = floor(|3 z|): P(n = 0) = P(|z| < 1/3) = 0.261, and the mean is 1.90.
    assert abs((counts == 0).float().mean() - 0.261) < 0.06
    assert abs(counts.mean() - 1.90) < 0.25
    image, boxes = data[3]
    assert all(
        torch.equal(one, other) for one, other in zip(FakeDataset(600)[3], (image, boxes), strict=True)
    )
    assert (image.shape, image.dtype) == ((1, 256, 256), torch.uint8)
    every = torch.cat([data[i][1] for i in range(100)])
    assert bool((every[:, 2:] > every[:, :2]).all())
    assert 0 <= every.min() < every.max() <= 256
    with pytest.raises(IndexError, match="got 600"):
        data[600]


def test_batches_depend_on_the_seed_alone() -> None:
    def images(seed: int) -> list[torch.Tensor]:
        config = ArticleConfig(seed=seed, batch_size=2, steps=2)
        return [batch[0] for batch in load_batches(config, pin_memory=False)]

    first, second = images(0)
    assert first.shape == (2, 1, 256, 256)
    assert not torch.equal(first, second)
    assert torch.equal(images(0)[1], second)
    assert not torch.equal(images(1)[0], first)


@pytest.mark.parametrize(("objective", "better"), [("mean GIoU", False), ("1 - GIoU", True)])
def test_one_objective_makes_boxes_worse_and_the_other_better(objective: Objective, better: bool) -> None:
    config = ArticleConfig(
        channels=(1, 1, 2, 2), hidden=4, batch_size=8, steps=40, learning_rate=1e-2, samples=64
    )
    outcome = ArticleRun(objective, config, CPU).train()
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


@pytest.mark.gpu
def test_it_trains_on_a_gpu_in_bfloat16() -> None:
    config = ArticleConfig(channels=(1, 2, 2, 2), hidden=4, batch_size=2, steps=4, bf16=True)
    run = ArticleRun("1 - GIoU", config, torch.device("cuda"))
    assert run.train().steps == 4
    assert next(run.net.parameters()).device.type == "cuda"


def test_a_broken_loss_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ArticleRun("1 - GIoU", ArticleConfig(channels=(1, 1, 1, 1), hidden=1, batch_size=2, steps=3), CPU)
    monkeypatch.setattr(run, "do_step", lambda *_: torch.tensor(float("nan")))
    with pytest.raises(TrainingError, match="loss must be finite, got nan at step 3"):
        run.train()


@pytest.mark.parametrize(
    ("processes", "extra", "words"),
    [
        (2, [], "--model article trains in one process, got 2 from torchrun"),
        (1, ["--data", "photos"], "--data must not be given with --model article"),
        (1, ["--teacher", "a.safetensors"], "--teacher must not be given with --model article"),
        (1, ["--resume"], "--resume must not be given with --model article"),
        (1, ["--set", "mosaic_share=1"], "unknown configuration key 'mosaic_share'"),
        (1, ["--set", "steps=0"], "steps: must be greater than or equal to 1, got 0"),
        (1, ["--set", "channels=[1,2]"], "channels[2]: Field required, got [1, 2]"),
    ],
)
def test_wrong_usage(
    processes: int,
    extra: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    assert main([*COMMAND, "--output", str(tmp_path), *extra]) == ExitCode.USAGE
    assert words in capsys.readouterr().err
