"""Loads by wrk, and the CPU time of services."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from programs import needs_wrk
from waiting import wait_until

from lensbox.bench.serve.services import ServerProgram, cpu_seconds, running

# Writes much text to stderr. Answers every second request with 503.
SERVICE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Handler.count += 1
        sum(range(200_000))  # CPU time that the kernel's clock notices
        good = (body, self.headers["Content-Type"]) == (b"an image", "image/jpeg")
        self.send_response(200 if good and Handler.count % 2 else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *_):
        pass
sys.stderr.write("x" * 300_000)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@needs_wrk
def test_a_load_counts_answers_and_cpu_time(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"an image")
    answers: list[object] = []
    program = ServerProgram("half", ("-c", SERVICE), "/", tmp_path / "body", "image/jpeg", answers.append)
    with running(program) as send:
        load = send(3, 1)
    assert answers == [{}]
    assert load.rate > 0
    assert load.failed == pytest.approx(load.rate, rel=0.5, abs=5)
    assert 0 < load.p50 <= load.p99 < 60
    assert 0 < load.cpu < 1


def test_cpu_time_counts_a_child_in_a_session_of_its_own() -> None:
    busy = "while True: pass"
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {busy!r}], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            wait_until(lambda: cpu_seconds(process.pid) > 1)  # the parent waits
        finally:
            os.kill(child, signal.SIGKILL)
