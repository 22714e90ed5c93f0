"""Teachers, and what a student learns from them."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from short_runs import SHORT_RUN, TINY, interrupt, run_options, train
from torch import Tensor

from lensbox.model import (
    DetectorConfig,
    FaceDetector,
    load_detector,
    read_metadata,
    save_detector,
    weights_sha256,
)
from lensbox.train.data.image_store import ImageStore
from lensbox.train.data.labels import fold_index, read_labels
from lensbox.train.loss.detection_loss import detection_loss, distillation_loss
from lensbox.train.loss.teachers import (
    Fold,
    Predict,
    Taught,
    Teachers,
    load_teachers,
    parse_fold,
    teach,
    without_fold,
)
from lensbox.train.run.origin import Origin
from lensbox.train.settings import ConfigError

CONFIG = SHORT_RUN
Lensbox = Callable[..., tuple[str, str]]


def test_each_photograph_is_in_one_fold(faces_folder: Path) -> None:
    images, _ = read_labels([faces_folder])
    names = [{image.name for image in without_fold(images, Fold(index, 3))} for index in range(3)]
    for image in images:
        assert [image.name not in kept for kept in names] == [
            fold_index(image.name, 3) == index for index in range(3)
        ]


def test_reads_and_writes_folds() -> None:
    assert parse_fold("1/4") == Fold(0, 4)
    assert str(parse_fold("4/4")) == "4/4"
    for text in ("0/4", "5/4", "1/1", "1", "", "a/4", "1/4/4", "-1/4", "1.0/4"):
        with pytest.raises(ConfigError, match="--leave-out must be a share such as 1/4"):
            parse_fold(text)


def detector(seed: int, size: str = "small") -> FaceDetector:
    torch.manual_seed(seed)
    return FaceDetector(DetectorConfig.named(size)).eval()


def images(count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 1, 256, 256), generator=generator).float()


def fixed(box: list[float], score: float) -> Predict:
    """A teacher that always says the same of its one anchor."""

    def predict(batch: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tensor(box).expand(len(batch), 1, 4), torch.tensor(score).logit().expand(len(batch), 1)

    return predict


def test_teachers_are_averaged_and_boxes_count_by_scores() -> None:
    teacher = detector(1)
    boxes, logits = teacher(images())
    taught = teach([teacher], [], images())
    torch.testing.assert_close(taught.boxes, boxes.detach())
    torch.testing.assert_close(taught.scores, logits.detach().sigmoid())
    assert not taught.boxes.requires_grad
    taught = teach([fixed([0.0, 0.0, 8.0, 8.0], 0.6), fixed([4.0, 4.0, 16.0, 16.0], 0.2)], [], images())
    torch.testing.assert_close(taught.scores, torch.full((2, 1), 0.4))
    expected = torch.tensor([1.0, 1.0, 10.0, 10.0])  # three parts of the first, one of the second
    torch.testing.assert_close(taught.boxes, expected.expand(2, 1, 4))


def test_each_fold_s_images_are_shown_to_the_teacher_that_left_it_out() -> None:
    box = [0.0, 0.0, 8.0, 8.0]
    group = [fixed(box, score) for score in (0.1, 0.5, 0.9)]
    taught = teach([], [group], images(6))
    torch.testing.assert_close(taught.scores[:, 0], torch.tensor([0.1, 0.5, 0.9, 0.1, 0.5, 0.9]))
    taught = teach([fixed(box, 0.3)], [group, group[::-1]], images(6))
    torch.testing.assert_close(
        taught.scores[:, 0],
        torch.full((6,), (0.3 + 0.1 + 0.9) / 3)[:6].where(
            torch.arange(6) % 3 != 1, torch.tensor((0.3 + 0.5 + 0.5) / 3)
        ),
    )


def test_loss_of_hand_worked_anchors() -> None:
    boxes = torch.tensor([[[0.0, 0, 10, 10], [50.0, 50, 60, 60]]])
    taught = Taught(torch.tensor([[[2.0, 0, 12, 10], [0.0, 0, 5, 5]]]), torch.tensor([[0.8, 0.5]]))
    logits = torch.zeros(1, 2)  # a score of 0.5: cross entropy is ln 2 whatever the target
    ln2 = 0.6931471805599453
    classification = ((0.8 + 0.2 * 0.75 * 0.25) + (0.5 + 0.5 * 0.75 * 0.25)) * ln2 / 1.3
    # The first boxes share 80 of 120; the second pair shares nothing in a hull of 60 x 60.
    gious = [80 / 120, -(3600 - 125) / 3600]
    weights = [0.64, 0.25]
    # The op divides by at least 1.
    box = sum(w * (1 - g) for w, g in zip(weights, gious, strict=True)) / max(sum(weights), 1)
    loss = distillation_loss(boxes, logits, taught)
    assert float(loss) == pytest.approx(classification + 2 * box, rel=1e-5)


def test_weights_mix_labels_and_teachers() -> None:
    boxes, logits = (value.detach() for value in detector(1)(images()))
    taught = teach([detector(2)], [], images())
    targets = torch.zeros(2, 8, 4)
    targets[:, 0] = torch.tensor([40.0, 40, 80, 90])
    arguments = (boxes, logits, targets, torch.zeros(2, 8, 4))
    labels = detection_loss(*arguments, CONFIG)
    assert float(labels.distillation) == 0
    config = CONFIG.replace(label_weight=0.25, distill_weight=2.0)
    both = detection_loss(*arguments, config, taught)
    alone = distillation_loss(boxes, logits, taught)
    torch.testing.assert_close(both.distillation, alone)
    torch.testing.assert_close(both.total, 0.25 * labels.total + 2.0 * alone)


@pytest.fixture
def teachers(tmp_path: Path) -> Teachers:
    save_detector(detector(5, "base"), tmp_path / "one.safetensors")
    save_detector(detector(6), tmp_path / "two.safetensors")
    return load_teachers([tmp_path / "one.safetensors", tmp_path / "two.safetensors"])


def saved(path: Path, seed: int, left_out: str | None = None) -> Path:
    save_detector(detector(seed), path, {"left_out": left_out} if left_out else {})
    return path


def test_teachers_are_sorted_into_sets_by_the_fold_they_left_out(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{i}", i, f"{i % 2 + 1}/2") for i in range(4)] + [saved(tmp_path / "whole", 9)]
    teachers = load_teachers(paths)
    assert teachers.folds == 2
    digests = [weights_sha256(load_detector(path)) for path in paths]
    assert teachers.origin == {
        "teachers": ", ".join(path.name for path in paths),
        "teachers_sha256": ", ".join(digests),
    }
    weights = [[teacher.state_dict() for teacher in group] for group in (*teachers.sets, teachers.whole)]
    for group, seeds in zip(weights, ((0, 1), (2, 3), (9,)), strict=True):
        for state, seed in zip(group, seeds, strict=True):
            assert all(torch.equal(value, state[name]) for name, value in detector(seed).state_dict().items())


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (["1/2"], "--teacher must name as many teachers without each fold .* got 1 wi"),
        (["1/2", "2/2", "2/2"], "--teacher must name as many"),
        (["1/2", "2/2", "1/3"], "--teacher must name as many"),
        (["half"], "0: 'left_out' in its metadata must be a share .* 'half'"),
    ],
)
def test_rejects_incomplete_sets_of_teachers(tmp_path: Path, left_out: list[str], message: str) -> None:
    paths = [saved(tmp_path / str(i), i, text) for i, text in enumerate(left_out)]
    with pytest.raises(ConfigError, match=message):
        load_teachers(paths)


def test_a_student_draws_nearer_to_its_teacher(
    store: ImageStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A teacher that sees faces everywhere pulls scores up; labels have no weight here."""
    teacher = detector(5)
    for head in (teacher.head4, teacher.head8, teacher.head16, teacher.head32):
        assert head.prediction.bias is not None
        head.prediction.bias.data[0] += 4.0
    save_detector(teacher, tmp_path / "teacher.safetensors")
    config = CONFIG.replace(steps=30, label_weight=0.0, learning_rate=2e-3, log_seconds=1e-6)
    caplog.set_level(logging.INFO, "lensbox")
    teachers = load_teachers([tmp_path / "teacher.safetensors"])
    train(store, config, run_options(tmp_path / "run", origin=Origin(teachers=teachers)))
    metadata = read_metadata(tmp_path / "run" / "weights.safetensors")
    assert metadata.items() >= teachers.origin.items()
    assert teachers.origin["teachers"] == "teacher.safetensors"
    for name, value in teachers.whole[0].state_dict().items():
        assert torch.equal(value, teacher.state_dict()[name])

    def mean_score(trained: FaceDetector) -> float:
        return float(trained(images())[1].detach().sigmoid().mean())

    torch.manual_seed(config.seed)
    before = mean_score(FaceDetector(DetectorConfig.named("small")).eval())
    after = mean_score(load_detector(tmp_path / "run" / "weights.safetensors"))
    assert before < 0.02
    assert after > 2.5 * before
    assert any(" taught " in line for line in caplog.messages)


def test_a_resumed_run_needs_its_teachers(store: ImageStore, teachers: Teachers, tmp_path: Path) -> None:
    output = tmp_path / "run"
    interrupt(store, CONFIG, run_options(output, origin=Origin(teachers=teachers)), after=1)
    with pytest.raises(
        ConfigError, match=r"--teacher must be the same .* \(one.safetensors, two.safetensors\), got"
    ):
        train(store, CONFIG, run_options(output, resume=True))
    train(store, CONFIG, run_options(output, resume=True, origin=Origin(teachers=teachers)))
    assert (output / "weights.safetensors").is_file()


QUICK = [*TINY, "steps=1", "batch_size=4", "recalibration_views=0"]


def test_a_batch_must_divide_among_the_folds(faces_folder: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    teachers = [saved(tmp_path / f"{k}.safetensors", k, f"{k}/4") for k in (1, 2, 3, 4)]
    arguments = ["--data", faces_folder, "--output", tmp_path / "run", "--teacher", *teachers]
    _, said = lensbox("train", *arguments, "--set", *QUICK, "batch_size=6", code=2)
    assert "batch_size: must be a multiple of 4, the teachers' folds, got 6" in said


def test_a_fold_stays_left_out(faces_folder: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    """A resumed run keeps its fold. A run cannot leave out a fold that its initial weights have seen."""
    arguments = ["--data", faces_folder, "--set", *QUICK]
    run, other = ["--output", tmp_path / "run"], ["--output", tmp_path / "other"]
    lensbox("train", *arguments, *run, "--leave-out", "1/3")
    weights = tmp_path / "run" / "weights.safetensors"
    images, _ = read_labels([faces_folder])
    left = str(len(without_fold(images, Fold(0, 3))))
    assert int(left) < len(images)
    assert read_metadata(weights).items() >= {"left_out": "1/3", "photographs": left}.items()

    _, said = lensbox("train", *arguments, *run, "--resume", code=2)
    assert "--leave-out must be the same as when the run began (1/3), got nothing" in said
    lensbox("train", *arguments, *run, "--resume", "--leave-out", "1/3")
    assert read_metadata(weights)["left_out"] == "1/3"
    _, said = lensbox("train", *arguments, *other, "--weights", weights, "--leave-out", "2/3", code=2)
    assert "--weights must have been trained without fold 2/3, as --leave-out says" in said
    assert "got weights that left out 1/3" in said
    lensbox("train", *arguments, *other, "--weights", weights)
    assert "left_out" not in read_metadata(tmp_path / "other" / "weights.safetensors")
