"""Bounds of settings."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from pydantic import ValidationError

from lensbox.common.fields import first_reason
from lensbox.serve.cli import serve
from lensbox.serve.settings import PILLOW_MAX_PIXELS, Settings

_ORIGINS = "cors_origins must be *, or a comma-separated list of origins such as https://shop.example, got"
_TOGETHER = "tls_certificate and tls_key must be given together, got only"


_ACCEPTED: dict[str, list[Any]] = {
    "device": ["auto", "all", "cpu", "cuda", "cuda:0,cuda:12", "cpu,cpu"],
    "max_pixels": [1, PILLOW_MAX_PIXELS],
    "cors_origins": ["", "*", "https://a.example", "http://localhost:3000,https://[::1]:8443"],
}


def test_accepts_values_at_the_bounds() -> None:
    for name, values in _ACCEPTED.items():
        for value in values:
            assert getattr(Settings(Path("a"), **{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "device",
            ["tpu", "cuda:", "cuda:0,", "cuda:1 ,cuda:0", "all,cpu"],
            "device must be auto, cpu, cuda or cuda:N, got",
        ),
        ("answer_timeout", [0.0, math.nan, math.inf], "answer_timeout must be "),
        ("max_pixels", [PILLOW_MAX_PIXELS + 1], "max_pixels must be less than or equal to 89478485, got"),
        ("log_format", ["yaml"], "log_format must be 'text' or 'json', got \"yaml\""),
        (
            "cors_origins",
            ["a.example", "https://a.example/", "https://a, https://b", "*,https://a"],
            _ORIGINS,
        ),
        ("tls_certificate", [Path("file.pem")], f"{_TOGETHER} tls_certificate"),
        ("tls_key", [Path("file.pem")], f"{_TOGETHER} tls_key"),
        ("models", [Path("folder")], "artifact or models must be given, got both"),
    ],
)
def test_rejects(name: str, values: list[Any], message: str) -> None:
    for value in values:
        with pytest.raises(ValidationError) as caught:
            Settings(Path("a"), **{name: value})
        assert first_reason(caught.value).startswith(message)


def test_pixels_stay_below_pillows_own_limit() -> None:
    assert PILLOW_MAX_PIXELS == PIL.Image.MAX_IMAGE_PIXELS


def test_call_limit_is_the_longest_timeout() -> None:
    settings = Settings(Path("a"), engine_timeout=60.0, answer_timeout=30.0)
    assert settings.call_limit(5.0) == 60
    assert settings.call_limit(90.0) == 90
    assert dataclasses.replace(settings, answer_timeout=120.0).call_limit(90.0) == 120
    assert dataclasses.replace(settings, engine_timeout=0.0).call_limit(90.0) == math.inf


def test_the_table_of_the_page_has_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs/service.md").read_text(encoding="utf-8")
    section = page.split("## Settings")[1].split("\n## ")[0]
    options_of_rows = re.findall(r"^\| (`--.*?) \|", section, re.MULTILINE)
    listed = {name for row in options_of_rows for name in re.findall(r"--[a-z-]+", row)}
    assert listed == {name for option in serve.params for name in option.opts}
