"""Settings refuse what cannot work."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from lensbox.serve.settings import PILLOW_MAX_PIXELS, Settings

_COUNTS = [
    "threads",
    "decode_threads",
    "max_body_bytes",
    "max_json_bytes",
    "max_pixels",
    "max_boxes",
    "max_images",
    "max_requests",
    "max_connections",
    "max_batch",
    "queue_size",
    "queue_bytes",
    "shutdown_timeout",
    "keep_alive_timeout",
]
_TIMES = {
    "max_delay",
    "body_timeout",
    "send_timeout",
    "answer_timeout",
    "engine_timeout",
    "shutdown_delay",
}


def _settings(name: str, value: Any) -> Settings:
    return Settings(Path("a"), **{name: value})


def test_every_number_is_checked_below() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)}
    others = {
        "artifact",
        "device",
        "devices",
        "public_key",
        "frontends",
        "busy_poll",
    }
    others |= {"no_page"}
    safety = {"api_keys_file", "cors_origins", "tls_certificate", "tls_key", "otel_endpoint"}
    assert fields == {*_COUNTS, *_TIMES, *others, *safety}


@pytest.mark.parametrize("name", _COUNTS)
@pytest.mark.parametrize("value", [0, -3])
def test_counts_are_at_least_one(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be at least 1, got {value}$"):
        _settings(name, value)
    assert getattr(_settings(name, 1), name) == 1


@pytest.mark.parametrize("name", _COUNTS)
def test_counts_have_a_bound_above(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be at most \d+, got {10**15}$"):
        _settings(name, 10**15)


@pytest.mark.parametrize("name", ["body_timeout", "send_timeout", "answer_timeout"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_times_are_positive_and_finite(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be above 0 and at most 86400, got {value}$"):
        _settings(name, value)
    assert getattr(_settings(name, 0.5), name) == 0.5


def test_device_is_one_of_three() -> None:
    with pytest.raises(ValueError, match=r"^device must be one of auto, cpu, cuda, got 'tpu'$"):
        Settings(Path("a"), device="tpu")


def test_pixels_stay_below_pillows_own_limit() -> None:
    assert PILLOW_MAX_PIXELS == PIL.Image.MAX_IMAGE_PIXELS
    with pytest.raises(ValueError, match="max_pixels must be at most 89478485, got 89478486"):
        Settings(Path("a"), max_pixels=PILLOW_MAX_PIXELS + 1)


@pytest.mark.parametrize("value", [-1.0, float("nan"), 1001.0])
def test_the_delay_is_at_most_a_second(value: float) -> None:
    with pytest.raises(ValueError, match=rf"^max_delay must be at (least 0|most 1000), got {value}$"):
        _settings("max_delay", value)
    assert _settings("max_delay", 0.0).max_delay == 0


@pytest.mark.parametrize("value", ["", "all", "cpu", "cuda", "cuda:0,cuda:12", "cpu,cpu"])
def test_devices_that_can_be(value: str) -> None:
    assert _settings("devices", value).devices == value


@pytest.mark.parametrize("value", ["auto", "cuda:", "cuda:0,", "cuda:1 ,cuda:0", "tpu:0", "all,cpu"])
def test_devices_that_cannot_be(value: str) -> None:
    with pytest.raises(ValueError, match=r"^devices must be all, or cpu, cuda and cuda:N with commas"):
        _settings("devices", value)


@pytest.mark.parametrize("value", [-1, 257])
def test_front_ends_may_be_none(value: int) -> None:
    with pytest.raises(ValueError, match=rf"^frontends must be at (least 0|most 256), got {value}$"):
        _settings("frontends", value)
    assert _settings("frontends", 0).frontends == 0


@pytest.mark.parametrize("value", [-1, 101])
def test_processes_stay_awake_for_a_tenth_of_a_second_at_most(value: int) -> None:
    with pytest.raises(ValueError, match=rf"^busy_poll must be at (least 0|most 100), got {value}$"):
        _settings("busy_poll", value)
    assert _settings("busy_poll", 0).busy_poll == 0


@pytest.mark.parametrize("value", ["", "*", "https://a.example", "http://localhost:3000,https://[::1]:8443"])
def test_origins_that_can_be(value: str) -> None:
    assert _settings("cors_origins", value).cors_origins == value


@pytest.mark.parametrize(
    "value", ["a.example", "https://a.example/", "https://a, https://b", "*,https://a", "null", "https://"]
)
def test_origins_that_cannot_be(value: str) -> None:
    with pytest.raises(ValueError, match=r"^cors_origins must be \*, or such as https://shop.example with"):
        _settings("cors_origins", value)


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key"])
def test_a_certificate_comes_with_its_key(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^tls_certificate and tls_key must come together, got {name} alone$"
    ):
        _settings(name, Path("file.pem"))


@pytest.mark.parametrize("value", ["collector:4318", "ftp://collector", "http://collector?a=b", "http://"])
def test_collectors_that_cannot_be(value: str) -> None:
    with pytest.raises(ValueError, match=r"^otel_endpoint must be an http or https URL without a query, got"):
        _settings("otel_endpoint", value)
    assert _settings("otel_endpoint", "http://collector:4318/otlp").otel_endpoint


def test_a_call_may_take_as_long_as_anything_that_is_known_to_be_slow() -> None:
    settings = Settings(Path("a"), engine_timeout=60.0, answer_timeout=30.0)
    assert settings.call_limit(5.0) == 60
    assert settings.call_limit(90.0) == 90
    assert dataclasses.replace(settings, answer_timeout=120.0).call_limit(90.0) == 120
    assert dataclasses.replace(settings, engine_timeout=0.0).call_limit(90.0) == math.inf


@pytest.mark.parametrize("value", [-1.0, float("nan"), 3601.0])
def test_the_limit_of_a_call_is_at_most_an_hour(value: float) -> None:
    with pytest.raises(ValueError, match=rf"^engine_timeout must be at (least 0|most 3600), got {value}$"):
        _settings("engine_timeout", value)
