"""Temporary folders of services."""

import os
from pathlib import Path

import pytest

from lensbox.serve.errors import StartupError
from lensbox.serve.folders import service_folder


def test_removes_the_folders_of_killed_services_alone(tmp_path: Path) -> None:
    killed, starting, foreign = (tmp_path / name for name in ("lensbox-service-a", "lensbox-service-b", "c"))
    for folder in (killed, starting, foreign):
        folder.mkdir()
        (folder / "file").touch()
    (tmp_path / "lensbox-service-link").symlink_to(foreign)
    with service_folder(str(tmp_path)) as running:
        assert killed.exists()
        for folder in (Path(running), killed, foreign):
            os.utime(folder, (0, 0))
        with service_folder(str(tmp_path)) as other:
            assert not killed.exists()
            assert all(Path(folder).exists() for folder in (running, starting, foreign / "file", other))
        assert not Path(other).exists()
    assert not Path(running).exists()


def test_needs_a_folder_that_can_be_written(tmp_path: Path) -> None:
    with (
        pytest.raises(StartupError, match=f"the folder {tmp_path}/missing must be writable: No such file"),
        service_folder(f"{tmp_path}/missing"),
    ):
        pass
