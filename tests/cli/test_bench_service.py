"""`lensbox bench --url`."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from programs import Lensbox
from services import client_of

from lensbox.cli.samples import save_photos
from lensbox.common.errors import ExitCode


@pytest.fixture(scope="module")
def service(random_path: Path) -> Iterator[httpx.Client]:
    with client_of(random_path) as client:
        yield client


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    save_photos(folder)
    return folder


def requests_of(service: httpx.Client) -> float:
    """Return the number of answered detections in the service's own metrics."""
    lines = service.get("/metrics").text.splitlines()
    counts = [
        line.split()[-1]
        for line in lines
        if line.startswith("lensbox_requests_total") and '/v1/detect"' in line
    ]
    return sum(map(float, counts))


def test_counts_the_requests_that_the_service_answered(
    service: httpx.Client, photos: Path, lensbox: Lensbox
) -> None:
    before = requests_of(service)
    command = ["bench", "--url", str(service.base_url), photos, "--connections", "1,3", "--seconds", "0.5"]
    document = json.loads(lensbox(*command, "--json")[0])
    assert [row["connections"] for row in document["rows"]] == [1, 3]
    counted = 0.0
    for row in document["rows"]:
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
        assert row["errors"] == {}
        counted += row["requests_per_second"] * 0.5
    warm = 2 * len(list(photos.iterdir()))
    # Requests in flight when the time is over are counted; the time then is longer than 0.5 s.
    assert counted - 1 <= requests_of(service) - before - warm <= 4 * counted + 8
    lines = lensbox(*command)[0].splitlines()
    assert lines[0].endswith(f"face_detector version 1 on cpu, photographs: {len(list(photos.iterdir()))}")
    assert lines[2].split() == ["connections", "requests/s", "ms:", "p50", "p95", "p99", "errors"]
    assert [line.split()[0] for line in lines[3:]] == ["1", "3"]


def test_refuses_what_cannot_be_measured(
    service: httpx.Client, photos: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    url = str(service.base_url)
    (tmp_path / "text.jpg").write_text("hello")
    assert "must be given photographs" in lensbox("bench", "--url", url, code=ExitCode.USAGE)[1]
    assert (
        "--batch is not for --url"
        in lensbox("bench", "--url", url, photos, "--batch", "1", code=ExitCode.USAGE)[1]
    )
    assert (
        "--seconds must come with --url" in lensbox("bench", "a.pt", "--seconds", "1", code=ExitCode.USAGE)[1]
    )
    assert "http://" in lensbox("bench", "--url", "localhost", photos, code=ExitCode.USAGE)[1]
    assert "missing.jpg" in lensbox("bench", "--url", url, "missing.jpg", code=ExitCode.BAD_INPUT)[1]
    wrong = lensbox("bench", "--url", url, tmp_path / "text.jpg", code=ExitCode.UNUSABLE)[1]
    assert "undecodable_image" in wrong
    assert "no_answer" in lensbox("bench", "--url", "http://127.0.0.1:1", photos, code=ExitCode.UNUSABLE)[1]
