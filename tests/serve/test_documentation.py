"""docs/service.md names every option, error code and metric."""

import re
from pathlib import Path

import pytest

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
