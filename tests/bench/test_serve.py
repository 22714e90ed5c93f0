"""`lensbox bench serve`: services as processes, loads by wrk, the check of answers, a short run."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.serve.benchmark import photo_of, require_same
from lensbox.bench.serve.services import Body, running
from lensbox.cli.main import main
from lensbox.common.errors import ExitCode
from lensbox.runtime import load_artifact

needs_wrk = pytest.mark.skipif(
    shutil.which("wrk") is None and "LENSBOX_REQUIRE_WRK" not in os.environ,
    reason="there is no wrk (apt: wrk)",
)

# GET / answers 200 after much text on stderr. POST /even answers the second, the fourth request with 503.
SERVICE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0
    def do_GET(self):
        self.answer(200)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Handler.count += 1
        good = (body, self.headers["Content-Type"]) == (b"an image", "image/jpeg")
        self.answer(200 if good and (self.path == "/all" or Handler.count % 2) else 503)
    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
sys.stderr.write("x" * 300_000)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@needs_wrk
def test_a_load_counts_answers_and_cpu_time(tmp_path: Path) -> None:
    body = Body(tmp_path / "body", "image/jpeg")
    body.file.write_bytes(b"an image")
    with running([sys.executable, "-c", SERVICE], "/") as service:
        load = service.load("/all", body, connections=3, seconds=1)
        assert load.failed == 0
        assert load.rate > 0
        assert 0 < load.p50 <= load.p99 < 60
        assert 0 < load.cpu < 1
        half = service.load("/even", body, connections=3, seconds=1)
    assert half.failed == pytest.approx(half.rate, rel=0.5, abs=5)


def test_other_boxes_than_the_artifacts_are_caught(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path, "cpu")
    photo = photo_of(artifact)
    found = artifact.detect_image(artifact.read_photo(photo))
    clear = found.scores > artifact.metadata.score_threshold + 0.2
    assert bool(clear.any())
    require_same("peer", found.boxes.flip(0) + 0.5, found.scores.flip(0), artifact, photo)
    with pytest.raises(WrongAnswerError, match="peer and the artifact in process disagree about a box"):
        require_same("peer", found.boxes[~clear], found.scores[~clear], artifact, photo)
    more = (
        torch.cat([found.boxes, torch.tensor([[1.0, 2.0, 3.0, 4.0]])]),
        torch.cat([found.scores, torch.ones(1)]),
    )
    with pytest.raises(WrongAnswerError, match=r"about a box at \(1, 2, 3, 4\)"):
        require_same("peer", *more, artifact, photo)


@needs_wrk
def test_a_short_run_prints_a_table_for_each_number(
    artifact_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "serve", "--device", "cpu", "--quick", "--artifact", str(artifact_path)]
    assert main([*command, "--seconds", "1", "--connections", "1", "2"]) == ExitCode.GOOD
    one, two = capsys.readouterr().out.split("### ")[1:]
    assert one.startswith("1 connection, JPEG of 512 x 512, ")
    assert two.startswith("2 connections, ")
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in (one + two).splitlines() if "|" in line
    ]
    services = [line for line in lines if line[0] in ("lensbox", "in process")]
    assert [line[0] for line in services] == ["lensbox", "in process", "lensbox"]
    assert [line[-1] for line in services] == ["0", "0", "0"]
