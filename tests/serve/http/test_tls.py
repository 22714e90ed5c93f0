"""HTTPS with a self-signed certificate."""

import signal
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from serve_process import ServeProcess
from waiting import PATIENCE


@pytest.mark.parametrize("frontends", ["0", "1"])
def test_answers_come_over_tls(frontends: str, artifact_path: Path, tmp_path: Path, png: bytes) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=a"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    trust = ssl.create_default_context(cafile=certificate)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key), "--frontends", frontends)
    with ServeProcess(artifact_path, *options) as process:
        url = process.ready(trust)
        assert url.startswith("https://127.0.0.1:")
        assert httpx.post(f"{url}/v1/detect", content=png, verify=trust, timeout=PATIENCE).status_code == 200
        with pytest.raises(httpx.ConnectError, match=r"self.signed"):
            httpx.get(f"{url}/healthz")
        assert process.end(signal.SIGTERM) == 0
    assert "Traceback" not in process.log
