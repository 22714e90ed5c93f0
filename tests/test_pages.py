"""The blocks of pages, run as a reader does: README, tutorials, clients, deploy and your_detector.

Of every page, the options of `lensbox` exist.
"""

import contextlib
import functools
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import PIL.Image
import pytest
import torch
from page_blocks import Shell, commands, read_blocks
from programs import REPOSITORY, Lensbox, run
from serve_process import running_service
from services import client_of

from lensbox.cli.main import COMMANDS
from lensbox.cli.samples import save_photos
from lensbox.cli.source import shipped_artifact
from lensbox.common.errors import ExitCode
from lensbox.ops import library_path

README = read_blocks("README.md", section="Use")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Return a shell in an empty folder."""
    with contextlib.closing(Shell(tmp_path)) as shell:
        yield shell


@pytest.fixture
def readme(shell: Shell, shipped_path: Path) -> Shell:
    """Return a shell in a folder with the shipped detector, a photograph and the op library."""
    output = shell.folder / "artifacts" / "detector.pt"
    output.parent.mkdir()
    shutil.copy(shipped_path, output)
    shutil.copy(output, shell.folder)
    shutil.copy(library_path(), shell.folder)
    photo, _ = save_photos(output.parent / "photos")
    shutil.copy(photo, shell.folder / "photo.jpg")
    return shell


def test_python_of_the_readme(
    readme: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(readme.folder)
    target = torch.tensor([[[0.0, 0.0, 8.0, 8.0], [0.0, 0.0, 0.0, 0.0]]])
    names: dict[str, Any] = {
        "pred": target + 1,
        "target": target,
        "boxes": torch.tensor([[[0.0, 0.0, 8.0, 8.0], [0.0, 0.0, 8.0, 7.0], [9.0, 9.0, 12.0, 12.0]]]),
        "scores": torch.tensor([[0.9, 0.8, 0.7]]),
        "paths": ["photo.jpg", "missing.jpg"],
    }
    ops, *blocks = (block.text for block in README if block.language == "python")
    exec(compile(ops, "README.md", "exec"), names)
    assert names["loss"].item() == pytest.approx(1 - (49 / 79 - 2 / 81))  # by hand
    assert names["counts"].tolist() == [2]
    for text in blocks:
        if not torch.cuda.is_available():
            text = text.replace('device="cuda"', 'device="cpu"')
        exec(compile(text, "README.md", "exec"), names)
    found = [line.split(" ")[:2] for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in found] == names["paths"]


def test_commands_of_the_readme(readme: Shell, shipped_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        shutil.copy(shipped_path, command[-1])
        return subprocess.CompletedProcess(command, 0)

    # The first command without an artifact would export it, and say so.
    monkeypatch.setenv("XDG_CACHE_HOME", str(readme.folder / "cache"))
    with patch("subprocess.run", export):
        shipped_artifact()
    (console,) = (block.text for block in README if block.language == "console")
    for command, _ in commands(console):
        assert "grace_hopper.jpg" in readme.run(f"{command} --format table")
    for block in README:
        for command in block.text.splitlines() if block.language == "sh" else ():
            printed = readme.run(command.replace("curl ", "curl -s "))
            if not command.startswith("lensbox serve"):
                document = json.loads(printed)
                (image,) = document.get("images", [document])
                assert len(image["detections"]) == 1


@pytest.mark.exhaustive
def test_quick_start_runs(shell: Shell) -> None:
    """Run all steps in one test, as each step needs the one before. The folder has the clone's examples."""
    ignored = shutil.ignore_patterns("build")
    shutil.copytree(REPOSITORY / "examples", shell.folder / "examples", ignore=ignored)
    ran = 0
    for block in read_blocks("docs/quickstart.md")[1:]:
        if block.language == "python":
            (shell.folder / "block.py").write_text(block.text)
            assert shell.run("python block.py")
        for command, shown in commands(block.text):
            # Two steps show what twenty do.
            command = command.replace("curl ", "curl -s ").replace("train.py ", "train.py --steps 2 ")
            command = command.replace("call_service.py", f"call_service.py --url {shell.url}")
            assert bool(shell.run(command)) == bool(shown), command
            ran += 1
    assert ran >= 10


@pytest.mark.exhaustive
def test_clients_call_a_service(shell: Shell, random_path: Path) -> None:
    """Compare answers without numbers of detections: the detector has random weights."""
    blocks = read_blocks("docs/clients.md")
    save_photos(shell.folder / "artifacts" / "photos")  # as make demo does
    shutil.copy(random_path, shell.folder / "artifacts" / "detector.pt")
    with client_of(random_path) as client:
        shell.url = str(client.base_url).rstrip("/")
        for command, shown in (pair for kind, text in blocks if kind == "console" for pair in commands(text)):
            if not command.startswith("lensbox serve"):
                printed = shell.run(command)
                wanted = '"code":' if '"code":' in shown else '"detections":['
                assert wanted in printed or "/v1/detect" not in command, command
                if shown.startswith("{") and "/v2/" not in command:
                    assert json.loads(printed).keys() == json.loads(shown).keys(), command
        assert (shell.folder / "drawn" / "grace_hopper.jpg.png").is_file()
        for code in (text for kind, text in blocks if kind == "python"):
            local = code.replace("[0.5]", "[0.0]").replace("127.0.0.1:8000", shell.url[7:])
            (shell.folder / "block.py").write_text(local)
            assert shell.run("python block.py")


def test_production_takes_the_key_and_speaks_https(tmp_path: Path, random_path: Path) -> None:
    blocks = [block.text for block in read_blocks("docs/deploy.md")]

    def block_with(text: str) -> str:
        (found,) = (block for block in blocks if text in block)
        return found

    def run_script(script: str, lensbox: str = 'python -m lensbox.cli "$@"', **variables: str) -> str:
        """Run a script with shell functions in place of `lensbox` and `python`; return its stdout."""
        functions = f'lensbox() {{ {lensbox}; }}\npython() {{ {sys.executable} "$@"; }}\n'
        return run("bash", "-ec", functions + script, cwd=tmp_path, env=variables).stdout

    export = f'test "$1" = export && mkdir artifacts && cp {random_path} "$3"'
    block = block_with("openssl req").replace("\\\n", " ")
    prepare, serve, _ = re.split(r"^lensbox serve(?P<options>.*)\n", block, flags=re.MULTILINE)
    key = run_script(f'{prepare}\necho "$KEY"', export).split()[-1]
    PIL.Image.new("L", (64, 48), 128).save(tmp_path / "photo.jpg")
    assert "--host 0.0.0.0 --port 8000" in serve
    local = serve.replace("--host 0.0.0.0 --port 8000", "")
    for name in ("artifacts/detector.pt", "keys", "certificate.pem", "key.pem"):
        local = local.replace(f" {name}", f" {tmp_path / name}")
    artifact, *options = shlex.split(local)[1:]
    with running_service(Path(artifact), *options) as url:
        local = url.replace("127.0.0.1", "localhost")
        asking = block_with("curl --cacert").replace("https://localhost:8000", local)
        answers = run_script(asking.replace("curl ", "curl -sf "), KEY=key)
    assert answers.count('"detections":') == 2


@pytest.mark.exhaustive
def test_the_way_from_a_checkpoint_to_a_device(shell: Shell) -> None:
    """Run the page's file and commands. The package takes a minute, the device's folder 400 MB."""
    blocks = read_blocks("docs/checkpoint_to_device.md")
    shutil.copytree(REPOSITORY / "examples" / "own_checkpoint", shell.folder / "examples" / "own_checkpoint")
    ran = 0
    for language, text in blocks:
        if language == "python":
            (shell.folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
        for command, shown in commands(text) if language == "console" else ():
            printed = shell.run(command.replace("curl ", "curl -s "))
            # The answer of the service and of the program are to be the page's to the last digit.
            if shown.startswith("{"):
                assert printed.strip() == shown.strip(), command
            assert bool(printed) == bool(shown), command
            ran += 1
    assert ran == 15


PAGE = read_blocks("docs/your_detector.md")
EXPORTS = [
    (block.text.strip(), following.text if following.language == "text" else None)
    for block, following in zip(PAGE, [*PAGE[1:], PAGE[0]], strict=True)
    if block.language == "sh"
]
_SLOW = 3  # of the shipped detector


@pytest.fixture(scope="module")
def detectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the detectors of docs/your_detector.md."""
    folder = tmp_path_factory.mktemp("page")
    files = [text for language, text in PAGE if language == "python" and text.startswith("# ")]
    assert len(files) == 2
    for text in files:
        (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(*pair, marks=[pytest.mark.exhaustive] if index == _SLOW else [])
        for index, pair in enumerate(EXPORTS)
    ],
)
def test_exports_end_as_on_the_page(
    command: str, output: str | None, detectors: Path, monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox
) -> None:
    monkeypatch.chdir(detectors)
    monkeypatch.setattr(sys, "path", sys.path[:])
    failed = output is not None and "cannot be exported" in output
    program, *words = command.split()
    assert program == "lensbox"
    written = detectors / words[words.index("--output") + 1]
    written.unlink(missing_ok=True)
    lensbox(*words, code=ExitCode.UNUSABLE if failed else 0)
    assert written.exists() != failed


PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md", "bench/*.md", "cpp_runtime/*.md", "model/*.md")
    for path in REPOSITORY.glob(pattern)
)
CALL = re.compile(r"(?:\$ )?(?:\w+=\S+ )*(?:\S+/bin/)?lensbox (\w+)\b(.*)")


def commands_of(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the words of each call of `lensbox` in the shell blocks of a page."""
    for language, text in read_blocks(page):
        if language in ("sh", "console"):
            for line in text.replace("\\\n", " ").splitlines():
                for part in re.split(r"[|;&<>]", line.split(" #")[0]):
                    if found := CALL.match(part.strip()):
                        yield found[1], re.findall(r"--[a-z][\w-]*", found[2])


@functools.cache
def options_of(name: str) -> set[str]:
    command = COMMANDS[name].load()
    if isinstance(command, click.Group):  # bench: of the project's benchmarks and of FILE
        from lensbox.cli.bench import bench

        leaves: list[click.Command] = [*command.commands.values(), bench]
    else:
        leaves = [command]
    named = {option for leaf in leaves for parameter in leaf.params for option in parameter.opts}
    negative = {option for leaf in leaves for parameter in leaf.params for option in parameter.secondary_opts}
    return named | negative | {"--help"}


def test_pages_name_options_that_exist() -> None:
    checked = 0
    for page in PAGES:
        for name, words in commands_of(page):
            assert name in COMMANDS, f"{page}: lensbox {name}"
            unknown = set(words) - options_of(name)
            assert not unknown, f"{page}: lensbox {name} has no option {', '.join(sorted(unknown))}"
            checked += len(words)
    assert checked > 150
