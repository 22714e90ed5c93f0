"""Bounds of settings."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from lensbox.serve.settings import PILLOW_MAX_PIXELS, Settings

_COUNTS = [field.name for field in dataclasses.fields(Settings) if field.metadata.get("least") == 1]
_COLLECTOR = "otel_endpoint must be an http or https URL without a query, got"
_DEVICES = "devices must be all, or a comma-separated list of cpu, cuda and cuda:N, got"
_ORIGINS = "cors_origins must be *, or a comma-separated list of origins such as https://shop.example, got"
_TOGETHER = "tls_certificate and tls_key must be given together, got only"


def _settings(name: str, value: Any) -> Settings:
    return Settings(Path("a"), **{name: value})


@pytest.mark.parametrize("name", _COUNTS)
def test_counts_are_bounded(name: str) -> None:
    assert getattr(_settings(name, 1), name) == 1
    for value, rule in ((0, "least 1"), (-3, "least 1"), (10**15, r"most \d+")):
        with pytest.raises(ValueError, match=rf"^{name} must be at {rule}, got {value}$"):
            _settings(name, value)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("devices", ["", "all", "cpu", "cuda", "cuda:0,cuda:12", "cpu,cpu"]),
        ("frontends", [0, 256]),
        ("max_delay", [0.0, 1000.0]),
        ("cors_origins", ["", "*", "https://a.example", "http://localhost:3000,https://[::1]:8443"]),
        ("otel_endpoint", ["http://collector:4318/otlp"]),
    ],
)
def test_accepts(name: str, values: list[Any]) -> None:
    for value in values:
        assert getattr(_settings(name, value), name) == value


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("device", ["tpu"], "device must be one of auto, cpu, cuda, got"),
        ("devices", ["auto", "cuda:", "cuda:0,", "cuda:1 ,cuda:0", "tpu:0", "all,cpu"], _DEVICES),
        *(
            (name, [0.0, -1.0, math.nan, math.inf], f"{name} must be above 0 and at most 86400, got")
            for name in ("body_timeout", "answer_timeout")
        ),
        ("max_delay", [-1.0, math.nan], "max_delay must be at least 0, got"),
        ("engine_timeout", [3601.0], "engine_timeout must be at most 3600, got"),
        ("frontends", [-1], "frontends must be at least 0, got"),
        ("max_pixels", [PILLOW_MAX_PIXELS + 1], "max_pixels must be at most 89478485, got"),
        (
            "cors_origins",
            ["a.example", "https://a.example/", "https://a, https://b", "*,https://a"],
            _ORIGINS,
        ),
        ("tls_certificate", [Path("file.pem")], f"{_TOGETHER} tls_certificate"),
        ("tls_key", [Path("file.pem")], f"{_TOGETHER} tls_key"),
        ("otel_endpoint", ["collector:4318", "ftp://a", "http://collector?a=b", "http://"], _COLLECTOR),
    ],
)
def test_rejects(name: str, values: list[Any], message: str) -> None:
    for value in values:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            _settings(name, value)
        assert str(caught.value).startswith(message)


def test_pixels_stay_below_pillows_own_limit() -> None:
    assert PILLOW_MAX_PIXELS == PIL.Image.MAX_IMAGE_PIXELS


def test_call_limit_is_the_longest_timeout() -> None:
    settings = Settings(Path("a"), engine_timeout=60.0, answer_timeout=30.0)
    assert settings.call_limit(5.0) == 60
    assert settings.call_limit(90.0) == 90
    assert dataclasses.replace(settings, answer_timeout=120.0).call_limit(90.0) == 120
    assert dataclasses.replace(settings, engine_timeout=0.0).call_limit(90.0) == math.inf
