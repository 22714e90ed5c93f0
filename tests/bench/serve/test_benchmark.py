"""`lensbox bench serve`: the check of answers, loads by wrk, a short run."""

from pathlib import Path

import pytest
from programs import Lensbox, needs_wrk

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.serve import benchmark
from lensbox.bench.serve.benchmark import ServerProgram, photo_of, require_same, running
from lensbox.runtime import load_artifact


def test_other_boxes_than_the_artifacts_are_caught(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path, "cpu")
    photo = photo_of(artifact)
    rows = artifact.detect_image(photo).to_json()["detections"]
    near = [row | {"box": [edge + 0.5 for edge in row["box"]]} for row in rows]
    require_same(artifact, photo, {"detections": near})
    unclear = [row for row in rows if row["score"] <= artifact.metadata.defaults.score_threshold + 0.2]
    assert len(unclear) < len(rows)
    for wrong in (unclear, [*rows, {"box": [1.0, 2.0, 3.0, 4.0], "score": 1.0}]):
        with pytest.raises(WrongAnswerError, match="the answer: "):
            require_same(artifact, photo, {"detections": wrong})


@needs_wrk
def test_a_short_run_prints_a_table_for_each_number(
    artifact_path: Path, lensbox: Lensbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "_TURNS", 2)
    command = ["bench", "serve", "--device", "cpu", "--quick", "--artifact", artifact_path]
    one, two = lensbox(*command, "--seconds", 1, "--connections", 1, 2)[0].split("### ")[1:]
    assert one.startswith("1 connection, JPEG of 512 x 512, ")
    assert two.startswith("2 connections, ")
    lines = [line.split("|")[1:-1] for line in (one + two).splitlines() if "|" in line]
    cells = [(line[0].strip(), line[-1].strip()) for line in lines]
    served = [line for line in cells if line[0] in ("lensbox", "in process")]
    assert served == [("lensbox", "0"), ("in process", "0"), ("lensbox", "0")]


# Answers every second request with 503.
SERVICE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        Handler.count += 1
        sum(range(200_000))  # CPU time that the kernel's clock notices
        self.send_response(200 if Handler.count % 2 else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@needs_wrk
def test_a_load_counts_answers_and_cpu_time(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"an image")
    answers: list[object] = []
    program = ServerProgram("half", ("-c", SERVICE), "/", tmp_path / "body", "image/jpeg")
    with running(program, answers.append) as send:
        load = send(3, 1)
    assert answers == [{}]
    assert load.rate > 0
    assert load.failed == pytest.approx(load.rate, rel=0.5, abs=5)
    assert 0 < load.p50 <= load.p99 < 60
    assert 0 < load.cpu < 1
