"""The command `run` computes any program of torch.export, with inputs and outputs as .npy."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from programs import REPOSITORY
from runner_answers import answer, refusal
from small_program import Sizes, SmallNetwork
from torch import Tensor, nn

PROGRAMS = sorted((REPOSITORY / "cpp_runtime" / "tests" / "programs").iterdir())  # one of each torch


def computed(
    program: Path, inputs: list[Tensor], count: int, tmp_path: Path, *options: str
) -> tuple[Tensor, ...]:
    """Return the outputs of the runner."""
    files = [tmp_path / f"in{index}.npy" for index in range(len(inputs))]
    for file, value in zip(files, inputs, strict=True):
        np.save(file, value.numpy())
    written = [tmp_path / f"out{index}.npy" for index in range(count)]
    document = answer("run", "--program", program, "--input", *files, "--output", *written, *options)
    outputs = tuple(torch.from_numpy(np.load(file)) for file in written)
    assert [entry["shape"] for entry in document["outputs"]] == [list(output.shape) for output in outputs]
    return outputs


def assert_computes(network: nn.Module, calls: list[Any], tmp_path: Path, free: Any = None) -> None:
    """Assert that the runner computes what Python does. free: sizes of the only input."""
    program = tmp_path / "program.pt2"
    with torch.no_grad():
        exported = torch.export.export(network, calls[0], dynamic_shapes=free and (free,))
        torch.export.save(exported, program)
        for inputs in calls:
            expected = network(*inputs)
            outputs = computed(program, list(inputs), len(expected), tmp_path)
            torch.testing.assert_close(outputs, expected)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_of_a_cpu_computes_on_every_device(
    program: Path, device: torch.device, tmp_path: Path
) -> None:
    for batch in (1, 5):
        x = torch.rand(batch, 3, 8, 9)
        with torch.no_grad():
            expected = SmallNetwork().eval()(x)
        outputs = computed(program, [x], 2, tmp_path, "--device", device.type)
        torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-4)


class Kinds(nn.Module):
    """Arguments of further kinds: None in lists, strings, infinity, memory formats, numbers for tensors."""

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        picked = x[:, index]
        filled = x.masked_fill(x < 0.5, -torch.inf).amax(-1)
        laid = x[None].contiguous(memory_format=torch.channels_last)
        padded = nn.functional.conv2d(laid, torch.ones(2, 2, 3, 3), padding="same")
        return picked, filled, padded, torch.where(x > 0.5, x, 0), torch.arange(x.shape[0]) * 2, x.half()


def test_arguments_of_many_kinds(tmp_path: Path) -> None:
    assert_computes(Kinds(), [(torch.rand(2, 4, 5), torch.tensor([3, 0]))], tmp_path)


def test_sizes_that_are_compared(tmp_path: Path) -> None:
    calls = [(torch.rand(rows, 2),) for rows in (3, 8)]
    assert_computes(Sizes(), calls, tmp_path, {0: torch.export.Dim("rows", min=2, max=64)})


class Activations(nn.Module):
    """Convolutions before activations that oneDNN computes with them, and before others."""

    def __init__(self) -> None:
        super().__init__()
        names = ["ReLU", "Hardswish", "SiLU", "ReLU6", "LeakyReLU", "Sigmoid", "Tanh", "Hardsigmoid", "ELU"]
        layers = [
            [nn.Conv2d(4, 4, 3, padding=1, groups=1 + i % 2), getattr(nn, name)()]
            for i, name in enumerate(names)
        ]
        self.layers = nn.Sequential(*itertools.chain(*layers))
        self.last = nn.Conv2d(4, 6, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.last(self.layers(x))
        return y, y.relu(), y.flatten(2).softmax(2)


@pytest.mark.filterwarnings("ignore:No complete tensor found:UserWarning")  # torch knows contiguous ones only
def test_convolutions_with_activations(tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = Activations().eval()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # (torch's stub lacks this form)
    calls = [(torch.rand(batch, 4, 9, 8),) for batch in (2, 1, 3)]
    assert_computes(network, calls, tmp_path, {0: torch.export.Dim("batch")})


class Counter(nn.Module):
    """Changes a tensor in place: its buffer, a view of it, its input, or a result."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part
        self.register_buffer("count", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        count = self.get_buffer("count")
        changed = {"buffer": count, "view": count.t()[1:], "input": x[0], "result": count + x}[self.part]
        return (x * changed.add_(1).sum(),)


def test_a_program_that_changes_what_other_runs_see_is_refused(tmp_path: Path) -> None:
    x, program = torch.rand(2, 3), tmp_path / "counter.pt2"
    for part in ("buffer", "view", "input"):
        torch.export.save(torch.export.export(Counter(part), (x.clone(),)), program)
        assert "aten.add_.Tensor: the graph must not change inputs or weights" in refusal(
            3, "run", "--program", program
        )
    assert_computes(Counter("result"), [(x,)], tmp_path)


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    x, run = tmp_path / "x.npy", ["run", "--program", PROGRAMS[0], "--input"]
    np.save(x, np.zeros((1, 3, 8, 9), np.float32))
    assert "outputs, got 1" in refusal(2, *run, x, "--output", tmp_path / "y.npy")
    for value in (np.zeros((2, 2), ">f4"), np.asfortranarray(np.zeros((2, 3)))):
        np.save(x, value)
        assert "x.npy must hold little-endian numbers in C order" in refusal(4, *run, x)
    x.write_bytes(x.read_bytes()[:100])
    assert "x.npy must" in refusal(4, *run, x)
    assert "none.npy no such file" in refusal(4, *run, tmp_path / "none.npy")
