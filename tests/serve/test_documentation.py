"""docs/service.md names every option and error code, and its block "In production" works."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from free_port import free_port
from page_blocks import read_blocks
from services import Encode
from waiting import PATIENCE

import lensbox.serve
from lensbox.common.main import main
from lensbox.serve.observability.metrics import Metrics, ServiceState

_SERVE = Path(lensbox.serve.__file__).parent
_TEXT = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")


def test_every_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert "--queue-size" in options
    assert [option for option in sorted(options) if f"`{option}`" not in _TEXT] == []


def test_every_error_code_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in _SERVE.rglob("*.py"))
    codes = set(re.findall(r'(?:ApiError\(|_response\((?:request|path),)\s*\d{3},\s*"(\w+)"', source))
    assert {"overloaded", "body_too_large", "invalid_boxes"} <= codes
    assert [code for code in sorted(codes) if f"`{code}`" not in _TEXT] == []


def test_every_metric_is_documented() -> None:
    metrics = Metrics()
    metrics.watch(lambda: ServiceState(True, 0, 0))
    names = {family.name for family in metrics.exposed().collect() if family.name.startswith("lensbox_")}
    assert {"lensbox_requests", "lensbox_queue_jobs"} <= names
    assert [name for name in sorted(names) if not re.search(rf"`{name}(_total)?`", _TEXT)] == []


def test_the_block_for_production_works(tmp_path: Path, artifact_path: Path, encode: Encode) -> None:
    ((_, block),) = [block for block in read_blocks("docs/service.md") if block.language == "bash"]
    (tmp_path / "detector.pt").symlink_to(artifact_path)
    (tmp_path / "photo.jpg").write_bytes(encode("JPEG"))
    for name, module in (("lensbox", "-m lensbox.common"), ("python", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (tmp_path / name).chmod(0o755)
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            ["bash", "-e", "-c", block.replace("8443", str(free_port()))],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as shell,
    ):
        try:
            code = shell.wait(PATIENCE)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
        assert code == 0, (tmp_path / "log").read_text()
        assert shell.stdout is not None
        assert '"detections":[' in shell.stdout.read()
