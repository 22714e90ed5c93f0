from pathlib import Path

import pytest
import torch

from lensbox.common.errors import InputError
from lensbox.train.run.checkpoint import load_checkpoint, save_checkpoint


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
