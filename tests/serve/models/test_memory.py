"""Memory that is left for a second version."""

from pathlib import Path

import pytest
import torch

from lensbox.serve.errors import StartupError
from lensbox.serve.models import memory
from lensbox.serve.models.control import Need
from lensbox.serve.models.memory import check_memory, host_memory_left


@pytest.mark.parametrize(
    ("limit", "used", "left"), [(None, 0, 8 << 30), ("max", 1 << 30, 8 << 30), (3 << 30, 2 << 30, 5 << 28)]
)
def test_the_tighter_of_machine_and_container_counts(
    tmp_path: Path, limit: object, used: int, left: int
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {8 << 20} kB\n")
    (tmp_path / "own").write_text("0::/pod/mine\n")
    group = tmp_path / "groups/pod"
    (group / "mine").mkdir(parents=True)
    if limit is not None:
        for name, value in (("max", limit), ("current", used), ("stat", f"anon 5\ninactive_file {1 << 28}")):
            (group / f"memory.{name}").write_text(f"{value}\n")
    assert host_memory_left(tmp_path / "meminfo", tmp_path / "groups", tmp_path / "own") == left


def test_refuses_what_does_not_fit_beside_the_old_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "host_memory_left", lambda: 3 << 30)
    check_memory(Need(2 << 30, 0), torch.device("cpu"))
    with pytest.raises(StartupError, match=r"of the host must .* 3\.30 GiB more, got 3\.00 GiB"):
        check_memory(Need(3 << 30, 0), torch.device("cpu"))
