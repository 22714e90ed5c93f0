import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from short_runs import CPU, SHORT_RUN, interrupt, run_options, train
from torch import Tensor

from lensbox.model import ArticleNet, DetectorConfig, FaceDetector, load_detector
from lensbox.ops import masked_giou_loss
from lensbox.train.config.reading import config_from_yaml
from lensbox.train.config.settings import config_from_mapping
from lensbox.train.data.box_slots import fill_slots
from lensbox.train.data.fake_dataset import FakeDataset
from lensbox.train.data.image_store import ImageStore, load_images
from lensbox.train.data.wider_face import read_wider_face
from lensbox.train.errors import TrainingError
from lensbox.train.evaluation.evaluate import Figures, evaluate, load_evaluation_set
from lensbox.train.run import process_group
from lensbox.train.run import run as trainer
from lensbox.train.run.checkpoint import load_checkpoint
from lensbox.train.run.compile_and_capture import compile_and_capture
from lensbox.train.run.optimizer import join_gradients
from lensbox.train.run.step import TrainStep

CONFIG = SHORT_RUN.replace(steps=6, ema_decay=0.9, ema_warmup=2.0)


ANY_DATA: Any = object()  # for runs whose scoring is replaced


@pytest.fixture(scope="module")
def store(faces_folder: Path) -> ImageStore:
    return load_images(read_wider_face([faces_folder])[0], "cpu", capacity=8, workers=2)


def test_overfits_a_handful_of_photographs(
    store: ImageStore, faces_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = CONFIG.replace(
        steps=140,
        evaluations=1,
        batch_size=6,
        mosaic_share=0.0,
        whole_share=1.0,
        photometric=0.0,
        learning_rate=3e-3,
    )
    validation = load_evaluation_set(read_wider_face([faces_folder])[0], workers=2)
    untrained, _ = evaluate(FaceDetector(DetectorConfig.named("small")).eval().detect, validation, CPU)
    caplog.set_level(logging.INFO, "lensbox")
    figures = train(store, config, run_options(tmp_path), validation).figures
    assert untrained.average_precision["all>=8"] < 0.2
    assert figures is not None
    assert figures.average_precision["all>=8"] > 0.8
    assert any("average precision" in line for line in caplog.messages)

    # The weights on disk are the ones that were scored, and say how they came about.
    again, _ = evaluate(load_detector(tmp_path / "weights.safetensors").detect, validation, CPU)
    assert again.average_precision["all>=8"] == figures.average_precision["all>=8"]
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["average_precision"]["all>=8"] == figures.average_precision["all>=8"]
    assert written["config"]["batch_size"] == 6
    assert written["steps"] == 140
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert logged[-1]["AP all>=8"] == figures.average_precision["all>=8"]


def test_resumed_and_uninterrupted_runs_end_with_equal_weights(store: ImageStore, tmp_path: Path) -> None:
    train(store, CONFIG, run_options(tmp_path / "whole"))
    interrupt(store, CONFIG, run_options(tmp_path / "cut"), after=2)
    assert not (tmp_path / "cut" / "weights.safetensors").exists()
    interrupt(store, CONFIG, run_options(tmp_path / "cut", resume=True), after=3)
    train(store, CONFIG, run_options(tmp_path / "cut", resume=True))
    one = load_checkpoint(tmp_path / "whole" / "checkpoint.pt")["step"]
    other = load_checkpoint(tmp_path / "cut" / "checkpoint.pt")["step"]
    assert one["step"] == other["step"] == CONFIG.optimizer.steps
    for part in ("model", "average"):
        for name, value in one[part].items():
            assert torch.equal(value, other[part][name]), (part, name)


def test_the_best_average_is_kept(store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """best.safetensors holds the weights with the highest score, whatever came after them."""
    bands = ("all>=8", "large>=32")
    scores, seen = iter([0.3, 0.5, 0.4, 0.2]), []

    def score(step: TrainStep, *_: object, coco: bool = False) -> Figures:
        value, state = next(scores), step.average.detector.state_dict()
        seen.append((value, {name: tensor.clone() for name, tensor in state.items()}))
        return Figures(dict.fromkeys(bands, value), 1, 1, 0.4, 0.7)

    monkeypatch.setattr(trainer, "score", score)
    config = CONFIG.replace(evaluations=3, steps=8)
    train(store, config, run_options(tmp_path), ANY_DATA)
    assert [value for value, _ in seen] == [0.3, 0.5, 0.4, 0.2]
    best = load_detector(tmp_path / "best.safetensors").state_dict()
    assert all(torch.equal(value, seen[1][1][name]) for name, value in best.items())
    last = load_detector(tmp_path / "weights.safetensors").state_dict()
    assert all(torch.equal(value, seen[3][1][name]) for name, value in last.items())


def test_a_resumed_run_remembers_its_best(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = [Figures({"all>=8": value}, 1, 1, 0.4, 0.7) for value in (0.5, 0.4)]
    monkeypatch.setattr(trainer, "score", lambda *_, **__: figures.pop(0))
    config = CONFIG.replace(evaluations=1, steps=4)
    interrupt(store, config, run_options(tmp_path), 3, ANY_DATA)
    before = (tmp_path / "best.safetensors").read_bytes()
    train(store, config, run_options(tmp_path, resume=True), ANY_DATA)
    assert not figures
    assert (tmp_path / "best.safetensors").read_bytes() == before


def test_statistics_of_the_average_are_those_of_the_average_net(store: ImageStore) -> None:
    step = TrainStep(FaceDetector(DetectorConfig.named("small")), store.tensors, CONFIG, CPU)
    for _ in range(3):
        step.run(0.5)
    seen = []
    stem: Any = step.average.detector.backbone.stem
    first_conv, first_norm = stem[0][:2]
    handle = first_conv.register_forward_hook(lambda _module, _inputs, output: seen.append(output.double()))
    step.recalibrate()
    handle.remove()
    assert sum(map(len, seen)) == 8
    # Means over batches of the statistics of each.
    means = torch.stack([output.mean((0, 2, 3)) for output in seen]).mean(0)
    variances = torch.stack([output.var((0, 2, 3)) for output in seen]).mean(0)
    torch.testing.assert_close(first_norm.running_mean.double(), means, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(first_norm.running_var.double(), variances, rtol=1e-3, atol=1e-4)
    assert not step.average.detector.training


def test_recalibration_leaves_training_as_it_was(store: ImageStore) -> None:
    def weights(recalibrate: bool) -> dict[str, Tensor]:
        torch.manual_seed(1)
        step = TrainStep(FaceDetector(DetectorConfig.named("small")), store.tensors, CONFIG, CPU)
        for _ in range(3):
            step.run(0.5)
            if recalibrate:
                step.recalibrate()
        average = step.average.detector.named_parameters()
        return dict(step.model.state_dict()) | {f"average {name}": value for name, value in average}

    plain, recalibrated = weights(False), weights(True)
    assert all(torch.equal(value, recalibrated[name]) for name, value in plain.items())


def test_resuming_a_compiled_run_continues_it_too(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying the compiled functions out draws views; that must not change which views come afterwards."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    config = CONFIG.replace(compile=True, steps=3)
    train(store, config, run_options(tmp_path / "whole"))
    interrupt(store, config, run_options(tmp_path / "cut"), after=1)
    train(store, config, run_options(tmp_path / "cut", resume=True))
    one = load_checkpoint(tmp_path / "whole" / "checkpoint.pt")["step"]["model"]
    other = load_checkpoint(tmp_path / "cut" / "checkpoint.pt")["step"]["model"]
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_resuming_a_finished_run_changes_nothing(store: ImageStore, tmp_path: Path) -> None:
    config = CONFIG.replace(steps=2)
    train(store, config, run_options(tmp_path))
    before = load_detector(tmp_path / "weights.safetensors").state_dict()
    train(store, config, run_options(tmp_path, resume=True))
    after = load_detector(tmp_path / "weights.safetensors").state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_resuming_with_another_detector_is_refused(store: ImageStore, tmp_path: Path) -> None:
    interrupt(store, CONFIG, run_options(tmp_path), after=1)
    config = CONFIG.replace(model="base")
    with pytest.raises(ValueError, match="must hold the detector"):
        train(store, config, run_options(tmp_path, resume=True))


def test_a_run_saves_its_configuration_before_its_first_step(store: ImageStore, tmp_path: Path) -> None:
    interrupt(store, CONFIG, run_options(tmp_path), after=1)
    assert config_from_mapping(config_from_yaml(tmp_path / "config.json")) == CONFIG.replace(
        checkpoint_seconds=1e-9
    )


def test_gradients_of_two_processes_are_those_of_one_batch(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parts of a batch with few and with many positives, joined as two processes join theirs."""
    config = CONFIG.replace(batch_size=8)
    step = TrainStep(FaceDetector(DetectorConfig.named("small")), store.tensors, config, CPU)
    step.model.eval()  # batch norm then treats every view by itself
    torch.manual_seed(5)
    views = step.draw_views()

    def gradients(part: slice) -> Tensor:
        step.optimizer.zero_grad()
        images, targets, ignored = (value[part] for value in views)
        losses = step._forward_loss(images, targets, ignored)
        losses.total.backward()  # type: ignore[no-untyped-call]
        return losses.quality

    gradients(slice(None))
    whole = [p.grad.clone() for p in step.model.parameters() if p.grad is not None]
    # The all-reduce that a process would see: its own vector, and that of the other one.
    sent = []
    monkeypatch.setattr(process_group, "add_up", lambda flat: sent.append(flat.clone()))
    one = gradients(slice(7, None))
    join_gradients(step._parameters, one)
    monkeypatch.setattr(process_group, "add_up", lambda flat: flat.add_(sent[0]))
    other = gradients(slice(0, 7))
    join_gradients(step._parameters, other)
    assert other > 2 * one
    for expected, parameter in zip(whole, step.model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-3, atol=1e-5)


def test_failed_interim_evaluation_does_not_end_the_run(
    store: ImageStore,
    faces_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real: Any = evaluate
    calls: list[Any] = []

    def broken_once(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("out of memory")
        return real(*arguments)

    monkeypatch.setattr(trainer, "evaluate", broken_once)
    validation = load_evaluation_set(read_wider_face([faces_folder])[0], workers=2)
    config = CONFIG.replace(evaluations=1)
    assert train(store, config, run_options(tmp_path), validation).figures is not None
    assert len(calls) == 2
    assert any("training goes on: out of memory" in line for line in caplog.messages)


def test_time_limit_ends_the_run_and_its_schedule(store: ImageStore, tmp_path: Path) -> None:
    config = CONFIG.replace(steps=10**9)
    train(store, config, run_options(tmp_path, time_limit=1.5))
    assert (tmp_path / "weights.safetensors").is_file()
    assert load_checkpoint(tmp_path / "checkpoint.pt")["progress"] == 1.0


def test_a_time_limit_that_loading_used_up_is_refused(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="must leave time to train"):
        train(store, CONFIG, run_options(tmp_path, time_limit=1.0, started=time.monotonic() - 5))
    assert not (tmp_path / "weights.safetensors").exists()


def test_resuming_nothing_is_refused(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"checkpoint\.pt"):
        train(store, CONFIG, run_options(tmp_path, resume=True))


def test_a_loss_that_is_no_number_stops_the_run(store: ImageStore, tmp_path: Path) -> None:
    config = CONFIG.replace(learning_rate=1e30, warmup_progress=0.0, gradient_clip=0.0, steps=40)
    with pytest.raises(TrainingError, match="must be finite"):
        train(store, config, run_options(tmp_path))


def test_broken_weights_take_no_checkpoints_place(store: ImageStore, tmp_path: Path) -> None:
    config = CONFIG.replace(
        learning_rate=1e30,
        warmup_progress=0.0,
        gradient_clip=0.0,
        steps=40,
        log_seconds=1e6,
        checkpoint_seconds=1e-9,
    )
    with pytest.raises(TrainingError, match="weights must be finite"):
        train(store, config, run_options(tmp_path))
    kept = load_checkpoint(tmp_path / "checkpoint.pt")["step"]
    assert all(bool(value.isfinite().all()) for value in kept["model"].values())


def test_average_follows_weights_and_statistics(store: ImageStore) -> None:
    step = TrainStep(FaceDetector(DetectorConfig.named("small")), store.tensors, CONFIG, CPU)
    before = {name: value.clone() for name, value in step.average.detector.state_dict().items()}
    step.run(0.5)
    weight = 1 - 1 / 2  # decay (1 + 0) / (2 + 0)
    moved = 0
    for name, value in step.average.detector.state_dict().items():
        if value.is_floating_point():
            learned = step.model.state_dict()[name]
            torch.testing.assert_close(value, before[name] + weight * (learned - before[name]))
            moved += int(not torch.equal(value, before[name]))
    assert moved > 10
    assert not step.average.detector.training


def test_what_cannot_be_compiled_is_reported_and_run_plainly(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", broken)
    config = CONFIG.replace(compile=True)
    step = TrainStep(FaceDetector(DetectorConfig.named("small")), store.tensors, config, CPU)
    untouched = {name: value.clone() for name, value in step.model.state_dict().items()}
    compile_and_capture(step)
    assert step.mode == "eager"
    lines = caplog.messages
    assert len(lines) == 3
    assert all("no compiler here" in line for line in lines)
    assert all(torch.equal(value, untouched[name]) for name, value in step.model.state_dict().items())
    step.run(0.5)
    assert step.read_sums()["loss"] > 0


def test_compiled_step_traces_whole(store: ImageStore) -> None:
    """Views, and net with loss, are one graph each: no part falls back to Python inside a captured step."""
    step = TrainStep(FaceDetector(DetectorConfig.named("small")), store.tensors, CONFIG, CPU)
    from lensbox.train.views.draws import draw

    draws = draw(step.counts, torch.tensor(1.0), "cpu")
    views = torch.compile(step._make_views, fullgraph=True, backend="aot_eager")(draws)
    for one, other in zip(views, step._make_views(draws), strict=True):
        torch.testing.assert_close(one, other)
    compiled = torch.compile(step._forward_loss, fullgraph=True, backend="aot_eager")
    losses = compiled(*views)
    losses.total.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.clone() for p in step.model.parameters() if p.grad is not None]
    step.optimizer.zero_grad()
    plain = step._forward_loss(*views)
    plain.total.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(losses.total, plain.total)
    for one, parameter in zip(gradients, step.model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


def article_run(sign: int) -> tuple[float, float]:
    """Trains a small ArticleNet on three of the article's images. Returns the mean GIoU before and after."""
    torch.manual_seed(0)
    net = ArticleNet(channels=(4, 8, 8, 8), hidden=64, detections=8)
    with torch.no_grad():  # start with boxes on the canvas that depend on the image
        net.output.bias.copy_(torch.tensor([60.0, 60.0, 200.0, 200.0]).repeat(8))
        net.output.weight.mul_(10)
    data = FakeDataset(3, max_boxes=8)
    pictures, boxes = zip(*(data[i] for i in range(3)), strict=True)
    # Noise alone looks all the same.
    images = torch.stack(pictures) * torch.tensor([0.1, 0.5, 1.0]).view(3, 1, 1, 1)
    targets = fill_slots(boxes, [torch.zeros(len(rows)).bool() for rows in boxes], 8).boxes
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    values = []
    for _ in range(160):
        loss = masked_giou_loss(net(images), targets)
        values.append(1 - float(loss.detach()))
        optimizer.zero_grad()
        (loss if sign > 0 else 1 - loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return values[0], values[-1]


def test_minimising_the_articles_mean_giou_makes_boxes_worse() -> None:
    """The article's function returns the mean GIoU; minimised, it drives boxes away from their targets."""
    start, end = article_run(sign=-1)
    assert end < start - 0.2
    start, end = article_run(sign=+1)
    assert end > start + 0.35


def test_bfloat16_on_the_cpu_keeps_wide_depthwise_convolutions_in_float32(store: ImageStore) -> None:
    config = CONFIG.replace(bf16=True)
    torch.manual_seed(0)
    detector = FaceDetector(DetectorConfig.named("small"))
    step = TrainStep(detector, store.tensors, config, CPU)

    inputs = torch.rand(2, 96, 8, 8, dtype=torch.bfloat16)
    convolutions = [m for m in step.model.modules() if isinstance(m, torch.nn.Conv2d)]
    wide = next(m for m in convolutions if m.kernel_size == (5, 5) and m.groups == 96 and m.stride == (1, 1))
    with torch.autocast("cpu", torch.bfloat16):
        output = wide(inputs)
    exact = torch.nn.functional.conv2d(inputs.float(), wide.weight, padding=2, groups=96)
    assert output.dtype == torch.bfloat16
    assert torch.equal(output, exact.to(torch.bfloat16))  # rounded once, at the end
