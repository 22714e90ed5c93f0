"""Programs are data: they move to a device as a whole, and hostile ones do no harm."""

import contextlib
import io
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile_programs
import pytest
import torch
from damaged_files import rewritten
from hostile_programs import PWNED, SECRET
from programs import REPOSITORY, built_runner
from small_program import Sizes, SmallNetwork
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError, InputError
from lensbox.runtime import load_artifact
from lensbox.runtime.formats.program import read_program, records_of
from lensbox.runtime.formats.program_function import Graph
from lensbox.runtime.loading import load_artifact_bytes

CPU = torch.device("cpu")
GOOD = REPOSITORY / "cpp_runtime" / "tests" / "programs" / "torch-2.13.pt2"


def saved(network: nn.Module, *inputs: Tensor, free: Any = None) -> bytes:
    """Return the file of a network. free: sizes of the only input."""
    content = io.BytesIO()
    with torch.no_grad():
        program = torch.export.export(network.eval(), inputs, dynamic_shapes=free and (free,))
    torch.export.save(program, content)
    return content.getvalue()


def read(content: bytes, device: torch.device = CPU) -> Graph:
    return read_program(records_of(content), "model", device)


class MakingTensors(nn.Module):
    """Tensors of all kinds that a graph makes: by a device, by a conversion, from a constant, a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.arange(3, device=x.device).to(x.device, torch.float32)
        return x + rows * self.weight + torch.tensor([1.0, 2.0, 3.0])


def test_all_tensors_move_to_the_device() -> None:
    """To torch's device without storage, which refuses tensors of others as a GPU does."""
    network, x = MakingTensors(), torch.zeros(3)
    content = saved(network, x)
    (on_cpu,) = read(content)(x)
    assert torch.equal(on_cpu, network(x))
    (moved,) = read(content, torch.device("meta"))(x.to("meta"))
    assert moved.device.type == "meta"


@pytest.mark.parametrize("file", sorted(GOOD.parent.iterdir()), ids=lambda file: file.stem)
def test_computes_what_pytorch_does(file: Path) -> None:
    graph = read(file.read_bytes())
    for batch in (1, 5):
        x = torch.rand(batch, 3, 8, 9)
        with torch.no_grad():
            expected = SmallNetwork().eval()(x)
        for wanted, found in zip(expected, graph(x), strict=True):
            torch.testing.assert_close(found, wanted)


class Kinds(nn.Module):
    """Arguments of many kinds."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rows = x.shape[0]
        values, places = x.sort(dim=1)
        infinite = x.masked_fill(x < 0.5, -torch.inf).amax(-1)
        laid = x[None, None].contiguous(memory_format=torch.channels_last)
        padded = nn.functional.conv2d(laid, torch.ones(1, 1, 3, 3), padding="same")
        picked = x[:, torch.tensor([1, 0])]
        text = torch.einsum("ij,kj->ik", x, x)
        whole = torch.empty(rows, 2).fill_(3) + torch.arange(2) * 2
        return (*x.T.split(1), values, places, infinite, padded, picked, text, x.half(), whole)


@pytest.mark.parametrize("network", [Sizes(), Kinds()], ids=["sizes", "kinds"])
def test_arguments_of_many_kinds(network: nn.Module) -> None:
    graph = read(saved(network, torch.rand(3, 2), free={0: torch.export.Dim("rows", min=2, max=64)}))
    for rows in (3, 8):
        x = torch.rand(rows, 2)
        for wanted, found in zip(network(x), graph(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_refuses_other_inputs() -> None:
    graph = read(GOOD.read_bytes())
    for inputs in (
        (),
        (torch.zeros(1, 3, 8, 9, dtype=torch.int64),),
        (torch.zeros(3, 8, 9),),
        (torch.zeros(65, 3, 8, 9),),
        (torch.zeros(1, 3, 8, 8),),
    ):
        with pytest.raises(InputError, match="must be"):
            graph(*inputs)


class Writing(nn.Module):
    """Writes into a tensor in place."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part
        self.register_buffer("weight", torch.rand(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.get_buffer("weight")
        parts = {
            "own": weight + x,
            "weight": weight,
            "view": weight.t()[1:],
            "input": x[0],
            "dropout": nn.functional.dropout(weight, 0.5, False),
            "contiguous": weight.contiguous(),
        }
        return x + parts[self.part].relu_().sum()


def test_writes_into_own_tensors_alone() -> None:
    x = torch.rand(2, 3) - 0.5
    network = Writing("own")
    assert torch.equal(read(saved(network, x))(x)[0], network(x.clone()))
    for part in ("weight", "view", "input", "dropout", "contiguous"):
        with pytest.raises((ValueError, ArtifactError), match="must not change inputs or weights"):
            read(saved(Writing(part), x.clone()))(x)


# --- hostile programs ---


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder with a secret; nothing may be made in it or changed."""
    (tmp_path / SECRET).write_text("secret")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert {path.name for path in tmp_path.iterdir()} <= {SECRET, "programs"}
    assert (tmp_path / SECRET).read_text() == "secret"
    assert not Path(PWNED).exists()


def outcome(content: bytes) -> str:
    """Return what becomes of a program: "refused", or the sum of its outputs."""
    try:
        found = read(content)(INPUT)
        return str(sum(output.double().abs().sum().item() for output in found))
    except Exception:  # of any type, but no crash
        return "refused"


INPUT = torch.arange(2 * 3 * 8 * 9, dtype=torch.float32).sin().reshape(2, 3, 8, 9)
# These change what no reader looks at.
HARMLESS = ("_code", "_names")


def check_outcomes(count: int, seed: int) -> dict[str, str]:
    good = GOOD.read_bytes()
    expected = outcome(good)
    outcomes = {
        name: outcome(content)
        for name, content in hostile_programs.hostile_programs(good, "model", count, seed)
    }
    refused = Counter(name[5:] for name, answer in outcomes.items() if answer == "refused")
    for name, answer in outcomes.items():
        if name[5:] in HARMLESS:
            assert answer == expected, name
    share = count // 10
    assert refused["_functions"] == refused["_files"] == share
    assert min(refused[kind] for kind in ("_operators", "_writes", "_weights", "_results")) > share // 2
    return outcomes


def test_hostile_programs_do_no_harm(folder: Path) -> None:
    check_outcomes(300, seed=1)


def test_hostile_artifacts_do_no_harm(program_path: Path, folder: Path) -> None:
    """Artifacts with all their metadata and a new seal."""
    data = program_path.read_bytes()
    entries = hostile_programs.entries_of(data)
    assert load_artifact(program_path).self_test().passed
    for name, content in hostile_programs.hostile_programs(
        hostile_programs.packed(entries), "detect", 40, seed=2
    ):
        try:
            changed = hostile_programs.entries_of(content)
        except Exception:  # damaged as a whole, which other tests do
            continue

        def change(archive: dict[str, bytes], changed: dict[str, bytes] = changed) -> None:
            archive.clear()
            archive.update({f"detector/{entry}": value for entry, value in changed.items()})

        # ArtifactError, or an error of torch for an operator with such arguments. The fixture checks.
        with contextlib.suppress(ArtifactError, RuntimeError, ValueError, IndexError, TypeError):
            load_artifact_bytes(rewritten(data, change), name).self_test()


def test_pickles_are_refused_by_name(program_path: Path) -> None:
    def change(archive: dict[str, bytes]) -> None:
        (config,) = (name for name in archive if name.endswith("detect_weights_config.json"))
        document = json.loads(archive[config])
        next(iter(document["config"].values()))["use_pickle"] = True
        archive[config] = json.dumps(document).encode()

    with pytest.raises(ArtifactError, match="must be plain numbers, no pickle"):
        load_artifact_bytes(rewritten(program_path.read_bytes(), change), "pickled.pt2")


@pytest.mark.exhaustive
def test_thousands_of_hostile_programs_in_python_and_cpp(folder: Path) -> None:
    """C++'s unit tests run them, with the sanitizers if LENSBOX_RUNTIME_TESTS names such a build."""
    count, seed = 3000, 3
    outcomes = check_outcomes(count, seed)
    programs = folder / "programs"
    programs.mkdir()
    for name, content in hostile_programs.hostile_programs(GOOD.read_bytes(), "model", count, seed):
        (programs / f"{name}.pt2").write_bytes(content)
    tests = os.environ.get(
        "LENSBOX_RUNTIME_TESTS", str(built_runner().parent / "tests" / "lensbox_runtime_tests")
    )
    environment = {**os.environ, "LENSBOX_HOSTILE_PROGRAMS": str(programs)}
    done = subprocess.run(
        [tests, "--gtest_filter=*HostileFiles*"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = dict(line.split(" ", 1) for line in (programs / "answers").read_text().splitlines())
    assert len(answers) == count
    both = [name for name, answer in answers.items() if "refused" not in (answer, outcomes[name])]
    assert len(both) > count // 4
    for name in both:
        assert float(answers[name]) == pytest.approx(float(outcomes[name]), rel=1e-4, nan_ok=True), name
    (programs / "answers").unlink()
