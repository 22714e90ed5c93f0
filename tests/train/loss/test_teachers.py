"""Teachers, the folds that they leave out, and what a student learns from them."""

from pathlib import Path

import pytest
import torch
from short_runs import SHORT_RUN, TINY, Lensbox, small_detector
from torch import Tensor

from lensbox.model import load_detector, read_metadata, save_detector, weights_sha256
from lensbox.train.data.labels import fold_index, read_labels
from lensbox.train.loss.detection_loss import detection_loss, distillation_loss
from lensbox.train.loss.teachers import (
    Fold,
    Predict,
    Taught,
    load_teachers,
    parse_fold,
    teach,
    without_fold,
)
from lensbox.train.settings import ConfigError


def test_reads_and_writes_folds() -> None:
    assert parse_fold("1/4") == Fold(0, 4)
    assert str(parse_fold("4/4")) == "4/4"
    for text in ("0/4", "5/4", "1/1", "a/4"):
        with pytest.raises(ConfigError, match="--leave-out must be a share such as 1/4"):
            parse_fold(text)


def images(count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 1, 256, 256), generator=generator).float()


def fixed(box: list[float], score: float) -> Predict:
    """A teacher that always says the same of its one anchor."""

    def predict(batch: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tensor(box).expand(len(batch), 1, 4), torch.tensor(score).logit().expand(len(batch), 1)

    return predict


def test_teachers_are_averaged_and_boxes_count_by_scores() -> None:
    taught = teach([fixed([0.0, 0.0, 8.0, 8.0], 0.6), fixed([4.0, 4.0, 16.0, 16.0], 0.2)], [], images())
    torch.testing.assert_close(taught.scores, torch.full((2, 1), 0.4))
    expected = torch.tensor([1.0, 1.0, 10.0, 10.0])  # three parts of the first, one of the second
    torch.testing.assert_close(taught.boxes, expected.expand(2, 1, 4))


def test_each_fold_s_images_are_shown_to_the_teacher_that_left_it_out() -> None:
    box = [0.0, 0.0, 8.0, 8.0]
    group = [fixed(box, score) for score in (0.1, 0.5, 0.9)]
    scores = teach([], [group], images(6)).scores[:, 0]
    torch.testing.assert_close(scores, torch.tensor([0.1, 0.5, 0.9, 0.1, 0.5, 0.9]))
    scores = teach([fixed(box, 0.3)], [group, group], images(6)).scores[:, 0]
    torch.testing.assert_close(scores, torch.tensor([0.5, 1.3, 2.1] * 2) / 3)


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
    boxes, logits = (value.detach() for value in small_detector(1).eval()(images()))
    taught = teach([small_detector(2).eval()], [], images())
    assert not taught.boxes.requires_grad
    targets = torch.zeros(2, 8, 4)
    targets[:, 0] = torch.tensor([40.0, 40, 80, 90])
    arguments = (boxes, logits, targets, torch.zeros(2, 8, 4))
    labels = detection_loss(*arguments, SHORT_RUN)
    assert float(labels.distillation) == 0
    both = detection_loss(*arguments, SHORT_RUN.replace(label_weight=0.25, distill_weight=2.0), taught)
    alone = distillation_loss(boxes, logits, taught)
    torch.testing.assert_close(both.distillation, alone)
    torch.testing.assert_close(both.loss, 0.25 * labels.loss + 2.0 * alone)


def saved(path: Path, seed: int, left_out: str | None = None) -> Path:
    save_detector(small_detector(seed), path, {"left_out": left_out} if left_out else {})
    return path


def test_teachers_are_sorted_into_sets_by_the_fold_they_left_out(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{i}", i, f"{i % 2 + 1}/2") for i in range(4)] + [saved(tmp_path / "whole", 9)]
    teachers = load_teachers(paths)
    assert teachers.folds == 2
    digests = [weights_sha256(load_detector(path)) for path in paths]
    assert teachers.origin == {"teachers": "0, 1, 2, 3, whole", "teachers_sha256": ", ".join(digests)}
    found = [[weights_sha256(one) for one in group] for group in (*teachers.sets, teachers.whole)]
    assert found == [digests[:2], digests[2:4], digests[4:]]


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (["1/2"], "--teacher must name as many teachers without each fold .* got 1 wi"),
        (["1/2", "2/2", "2/2"], "--teacher must name as many"),
        (["half"], "0: 'left_out' in its metadata must be a share .* 'half'"),
    ],
)
def test_rejects_incomplete_sets_of_teachers(tmp_path: Path, left_out: list[str], message: str) -> None:
    paths = [saved(tmp_path / str(i), i, text) for i, text in enumerate(left_out)]
    with pytest.raises(ConfigError, match=message):
        load_teachers(paths)


def test_a_fold_stays_left_out(faces_folder: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    """A resumed run keeps its fold. A run cannot leave out a fold that its initial weights have seen."""
    arguments = ["--data", faces_folder, *TINY, "--steps", "1", "--recalibration-views", "0"]
    run = ["--output", tmp_path / "run"]
    lensbox("train", *arguments, *run, "--leave-out", "1/3")
    weights = tmp_path / "run" / "weights.safetensors"
    images, _ = read_labels([faces_folder])
    kept = {image.name for image in without_fold(images, Fold(0, 3))}
    assert kept == {image.name for image in images if fold_index(image.name, 3) != 0}
    left = str(len(kept))
    assert read_metadata(weights).items() >= {"left_out": "1/3", "photographs": left}.items()

    (tmp_path / "run" / "figures.json").unlink()  # the run is not finished
    _, said = lensbox("train", *arguments, *run, "--resume", code=2)
    assert "--leave-out must be the same as when the run began (1/3), got nothing" in said
    _, said = lensbox("train", *arguments, *run, "--weights", weights, "--leave-out", "2/3", code=2)
    assert "--weights must have been trained without fold 2/3, as --leave-out says" in said
    assert "got weights that left out 1/3" in said
