from pathlib import Path

import pytest
import torch
from short_runs import small_detector

from lensbox.common.errors import InputError
from lensbox.model import weights_sha256
from lensbox.train.run.checkpoint import load_average, load_checkpoint, save_checkpoint


def test_the_weight_average_is_a_detector(tmp_path: Path) -> None:
    detector = small_detector()
    step = {"model": {}, "average": detector.state_dict()}
    save_checkpoint(tmp_path / "c.pt", {"detector": detector.config.to_json(), "step": step})
    average = load_average(tmp_path / "c.pt")
    assert not average.training
    assert weights_sha256(average) == weights_sha256(detector)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    with pytest.raises(InputError, match=r"c\.pt"):
        load_checkpoint(path)
    save_checkpoint(path, {"value": torch.ones(1000)})
    whole = path.read_bytes()
    swapped = (whole.replace(b"\x80\x02}", b"\x80\x02?"), whole.replace(b"PK\1\2", b"PK??"))
    for damaged in (b"no checkpoint", whole[: len(whole) // 2], whole[200:], *swapped):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="must be a checkpoint") as caught:
            load_checkpoint(path)
        assert "weights_only" not in str(caught.value)  # torch's advice, to run what the file holds
    torch.save({"format": 0}, path)
    with pytest.raises(ValueError, match="format"):
        load_checkpoint(path)
