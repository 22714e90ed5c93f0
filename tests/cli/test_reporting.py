"""Warnings of unknown variables LENSBOX_..."""

import re
from pathlib import Path

import pytest
from programs import run

from lensbox.cli.main import main
from lensbox.cli.reporting import unknown_variables

REPOSITORY = Path(__file__).resolve().parents[2]
_POD = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "LENSBOX_SERVICE_HOST": "10.0.0.7",
    "LENSBOX_SERVICE_PORT_HTTP": "8000",
    "LENSBOX_PORT": "tcp://10.0.0.7:8000",
    "LENSBOX_PORT_8000_TCP_ADDR": "10.0.0.7",
}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LENSBOX_OPS_LIBARY", "did you mean LENSBOX_OPS_LIBRARY?"),
        ("LENSBOX_APIKEY", "did you mean LENSBOX_API_KEY?"),
        ("LENSBOX_PORT", "LENSBOX_API_KEY, LENSBOX_API_KEYS, LENSBOX_ONNXRUNTIME"),
    ],
)
def test_hints_at_a_similar_name(name: str, hint: str) -> None:
    (message,) = unknown_variables({name: "x", "PATH": "/bin", "LENSBOX_RUNNER": "y"})
    assert message.startswith(f"the environment variable {name} has no effect (")
    assert hint in message


def test_ignores_variables_of_kubernetes() -> None:
    assert not list(unknown_variables(_POD))
    outside = {name: value for name, value in _POD.items() if name.startswith("LENSBOX")}
    assert len(list(unknown_variables(outside))) == len(outside)


def test_every_variable_that_the_code_reads_is_known() -> None:
    listed = run("git", "ls-files", "*.py", "*.cpp", "*.h", ".ci/run", cwd=REPOSITORY)
    read = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\(|envvar=)["'](LENSBOX_\w+)""")
    named = re.compile(r"""(?:VARIABLE|Variable) = ["'](LENSBOX_\w+)""")
    texts = [(REPOSITORY / name).read_text(encoding="utf-8") for name in listed.stdout.split()]
    found = {name for text in texts for pattern in (read, named) for name in pattern.findall(text)}
    assert {"LENSBOX_OPS_LIBRARY", "LENSBOX_API_KEY", "LENSBOX_API_KEYS"} <= found
    assert not list(unknown_variables(dict.fromkeys(found, "")))


def test_a_command_warns_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LENSBOX_RUNER", "x")
    assert main(["info", str(tmp_path / "nothing.pt")]) == 3
    told = capsys.readouterr().err
    assert told.count("warning: the environment variable LENSBOX_RUNER has no effect") == 1
