"""Run every command and Python block of docs/clients.md against a service."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_blocks import commands, read_blocks
from programs import run, run_python
from services import Encode

_BLOCKS = read_blocks("docs/clients.md")
_ADDRESS = "127.0.0.1:8000"
_SERVE = "lensbox serve"  # the fixture runs the service


@pytest.fixture(scope="module")
def folder(artifact_path: Path, tmp_path_factory: pytest.TempPathFactory, encode: Encode) -> Path:
    """A working folder with a photograph and an artifact."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "grace_hopper.jpg").write_bytes(encode("JPEG"))
    (folder / "artifacts").mkdir()
    shutil.copy(artifact_path, folder / "artifacts" / "detector.pt")
    return folder


def _run(command: str, folder: Path, client: httpx.Client) -> str:
    own = command.replace(_ADDRESS, client.base_url.netloc.decode()).replace(
        "python -c", f"{sys.executable} -c"
    )
    own = re.sub(r"^lensbox ", f"{sys.executable} -m lensbox.common ", own)
    own = own.replace("curl ", "curl --fail-with-body --max-time 60 ")
    result = run("bash", "-c", own, cwd=folder, code=None)
    # 22: curl's exit code for HTTP errors, which some commands show.
    assert result.returncode in (0, 22), (command, result.stderr)
    return result.stdout


def _without_data(text: str) -> str:
    """Remove numbers, because the detector of the tests has random weights."""
    return re.sub(r'"data":\[[^]]*\]', '"data":[]', text)


def test_the_commands_print_what_is_shown(client: httpx.Client, folder: Path) -> None:
    for language, block in _BLOCKS:
        for command, shown in commands(block) if language == "console" else ():
            if command == _SERVE:
                continue
            printed = _run(command, folder, client)
            if command.startswith("lensbox detect"):
                _check_detections(command, printed, shown, folder)
                continue
            if "/v1/detect" in command and "hello" not in command:
                assert '"detections":[' in printed, (command, printed)
            if "-i " in command:
                assert "x-request-id: portrait-1" in printed
            if shown:
                assert _without_data(printed) == _without_data(shown.rstrip("\n")), command


def _check_detections(command: str, printed: str, shown: str, folder: Path) -> None:
    """Check the form of the output. The numbers differ from the page: another detector and picture."""
    if shown:
        assert printed.splitlines()[0] == shown.splitlines()[0]
        first, expected = printed.splitlines()[1], shown.splitlines()[1]
        assert re.sub(r"[\d.]+", "0", first).split() == re.sub(r"[\d.]+", "0", expected).split()
    elif "> found.jsonl" in command:
        names = [json.loads(line)["file"] for line in (folder / "found.jsonl").read_text().splitlines()]
        assert names == ["drawn/grace_hopper.png", "grace_hopper.jpg"]
    else:
        assert json.loads(printed)["file"] == "grace_hopper.jpg"
        assert (folder / "drawn" / "grace_hopper.png").is_file()


@pytest.mark.parametrize("code", [block for language, block in _BLOCKS if language == "python"])
def test_the_python_runs(client: httpx.Client, folder: Path, code: str) -> None:
    # Accept any score, because the detector of the tests has random weights.
    own = code.replace(_ADDRESS, client.base_url.netloc.decode()).replace("[0.5]", "[0.0]")
    lines = run_python("-c", own, cwd=folder).stdout.splitlines()
    assert lines
    assert all(re.match(r"0\.\d+ \[", line) for line in lines)


def test_the_pages_function_retries(client: httpx.Client) -> None:
    """The page's function retries after 503, and raises an error after 400."""
    code: Any = next(block for language, block in _BLOCKS if "def detect(" in block)
    names: dict[str, Any] = {}
    exec(code[: code.index("with httpx.Client")], names)
    answers = [
        httpx.Response(503, headers={"Retry-After": "0"}),
        httpx.Response(200, json={"detections": [7]}),
    ]
    transport = httpx.MockTransport(lambda request: answers.pop(0))
    with httpx.Client(base_url="http://service", transport=transport) as fake:
        assert names["detect"](fake, Path(__file__)) == [7]
    with pytest.raises(RuntimeError, match="undecodable_image: the image must be one of"):
        names["detect"](client, Path(__file__))
