"""Weights of the checkpoints of trainers: exactly one set must fit, wherever it lies."""

import argparse
import logging
import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from damaged_files import archive_of
from small_detectors import Landmarks
from torch import nn

from lensbox.common.errors import InputError
from lensbox.export.weights import load_weights

State = dict[str, Any]


class Net(nn.Module):
    """Convolution, batch norm and linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 3)


class Wrapper(nn.Module):
    """A detector around a network, with a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.register_buffer("anchors", torch.ones(4))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight


def state(value: float = 2.0, module: Callable[[], nn.Module] = Net) -> State:
    """Return a state dict whose tensors all have one value."""
    return {
        name: torch.full_like(tensor, int(value) if tensor.dtype == torch.int64 else value)
        for name, tensor in module().state_dict().items()
    }


def renamed(prefix: str, value: float = 2.0) -> State:
    return {f"{prefix}{name}": tensor for name, tensor in state(value).items()}


def parameters(value: float) -> State:
    """Return an average of parameters alone."""
    return {name: tensor for name, tensor in state(value).items() if not re.search("running|tracked", name)}


def loaded(path: Path, key: str | None = None, module: Callable[[], nn.Module] = Net) -> set[float]:
    """Return the values of the parameters after loading."""
    made = module()
    load_weights(made, path, key)
    return {float(value) for tensor in made.parameters() for value in tensor.detach().flatten()}


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Any], Path]:
    def save(checkpoint: Any) -> Path:
        torch.save(checkpoint, tmp_path / "w.pt")
        return tmp_path / "w.pt"

    return save


Saved = Callable[[Any], Path]

CIRCLE: dict[str, Any] = {"model": state()}
CIRCLE["itself"] = CIRCLE
ONE_SET: dict[str, Any] = {
    "a circle": CIRCLE,
    "DDP of a compiled detector": renamed("module._orig_mod."),
    "compiled part": {name.replace(".", "._orig_mod."): value for name, value in state().items()},
    "FSDP": {name.replace(".", "._fsdp_wrapped_module."): value for name, value in state().items()},
    "AveragedModel": {"n_averaged": torch.tensor(3), **renamed("module.")},
    "Lightning": {"epoch": 3, "state_dict": {**renamed("model."), "loss.weight": torch.ones(2)}},
    "two prefixes": {"state_dict": renamed("model.net.")},
    "model": {"model": state(), "optimizer": {"state": {}, "param_groups": []}, "epoch": 3},
    "deep": [{"x": (1, {"state": OrderedDict(state())})}, None],
    "float16": {
        name: value.half() if value.is_floating_point() else value for name, value in state().items()
    },
    "command line": {"model": state(), "args": argparse.Namespace(lr=0.1)},
    "objects of other classes": {
        "model": state(),
        "best": np.float64(0.5),
        "confusion": np.zeros((2, 2)),
        "output": Path("runs"),
        "history": defaultdict(list, loss=[deque([1.0])]),
        "network": nn.ReLU(),
    },
    "Adam": {
        "model": state(),
        "optimizer": {"state": {i: {"exp_avg": value} for i, value in enumerate(parameters(9.0).values())}},
    },
    "without counters": {name: value for name, value in state().items() if "tracked" not in name},
    "twice the same": {"model": state(), "ema": state(), "best": {"ema": parameters(2.0)}},
    "another network": {"model": state(), "teacher": {"conv.weight": torch.ones(7), "extra": torch.ones(2)}},
}


@pytest.mark.parametrize("name", ONE_SET)
def test_takes_the_only_weights(name: str, saved: Saved) -> None:
    assert loaded(saved(ONE_SET[name])) == {2.0}


AVERAGE = state(5.0)
SEVERAL: dict[str, tuple[Any, str]] = {  # and the place of the average
    "beside": ({"model": state(), "ema": AVERAGE}, "ema"),
    "RT-DETR": ({"model": state(), "ema": {"module": AVERAGE, "updates": 3}}, "ema.module"),
    "Lightning": ({"state_dict": renamed("model."), "callbacks": {"EMA": {"s": AVERAGE}}}, "callbacks.EMA.s"),
    "a list of optimizers": ({"model": state(), "o": [{"p": 1}, {"ema": AVERAGE}]}, "o.1.ema"),
    "extra counter": (
        {"net": state(), "ema": {"steps": torch.tensor(3), **renamed("module.", 5)}},
        "ema.module",
    ),
    "prefixes": ({**renamed("net."), **renamed("ema.module.", 5)}, "ema.module"),
    "no prefix and one": ({**state(), **renamed("ema.", 5)}, "ema"),
    "wrapped and not": ({**state(), **renamed("module.", 5)}, "module"),
    "half precision": ({"model": state(), "ema": {n: t.half() for n, t in AVERAGE.items()}}, "ema"),
    "parameters alone": ({"model": state(), "shadow": parameters(5)}, "shadow"),
    "names without dots": (
        {**renamed("model."), **{f"model_ema.{n.replace('.', '')}": t for n, t in parameters(5).items()}},
        "model_ema",
    ),
    "names with underscores": (
        {"model": state(), "ema": {n.replace(".", "_"): t for n, t in parameters(5).items()}},
        "ema",
    ),
    "no names": (
        {"model": state(), "ema": {"shadow_params": [*parameters(5).values()]}},
        "ema.shadow_params",
    ),
    "a tuple of an optimizer": (
        {"model": state(), "optimizer_states": [{"ema": (*parameters(5).values(),)}]},
        "optimizer_states.0.ema",
    ),
    "ASGD": (
        {"model": state(), "o": {"state": {i: {"ax": t} for i, t in enumerate(parameters(5).values())}}},
        "o.state.*.ax",
    ),
    "a key with dots": (
        {"model": state(), "a.b": {"c": AVERAGE}, "a": {"b": {"c": state(7)}}},
        '["a.b", "c"]',
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_weights_need_a_key(name: str, saved: Saved) -> None:
    checkpoint, place = SEVERAL[name]
    path = saved(checkpoint)
    with pytest.raises(InputError, match=r"w\.pt holds several weights") as caught:
        loaded(path)
    lines = str(caught.value).splitlines()[1:]
    assert len(lines) == (3 if name == "a key with dots" else 2)
    options = [
        re.fullmatch(r"  --weights-key '?(.+?)'?: (\d+) tensors(, without buffers)?", line) for line in lines
    ]
    keys = {option[1] for option in options if option}
    assert len(keys) == len(lines)
    assert place in keys
    for key in keys:
        assert loaded(path, key) == {5.0 if key == place else 7.0 if key == '["a", "b", "c"]' else 2.0}


def test_average_of_parameters_takes_the_buffers_of_the_weights(saved: Saved) -> None:
    net = Net()
    load_weights(net, saved({"model": state(), "shadow": parameters(5)}), "shadow")
    assert net.norm.weight[0] == 5
    assert net.norm.running_mean is not None
    assert net.norm.running_mean[0] == 2
    for others in ({}, {"model": state(), "older": state(7.0)}):
        with pytest.raises(InputError, match=r"\d of \d tensors are missing, such as norm\.running_mean"):
            loaded(saved({"shadow": parameters(5), **others}), "shadow" if others else None)


def test_key_may_name_what_lies_above(saved: Saved) -> None:
    path = saved({"model": state(), "ema": {"module": AVERAGE, "updates": 3}})
    assert loaded(path, "ema") == {5.0}
    with pytest.raises(
        InputError, match=r"--weights-key must be a place .* got 'em':\n  --weights-key model: 9"
    ):
        loaded(path, "em")


@pytest.mark.parametrize(
    "change",
    [
        lambda ema: ema.pop("head.bias"),
        lambda ema: ema.update(extra=torch.ones(2)),
        lambda ema: ema.update({"head.weight": torch.ones(9, 2), "head.bias": torch.ones(9)}),
        lambda ema: [ema.pop(name) for name in list(ema) if not name.startswith("head")],
        lambda ema: ema.update({name: torch.ones(9) for name in ("conv.bias", "head.weight", "head.bias")}),
    ],
)
def test_weights_that_fit_in_part_are_named(change: Callable[[State], Any], saved: Saved) -> None:
    average = state(5.0)
    change(average)
    with pytest.raises(InputError, match="--weights-key model: 9 tensors\n  --weights-key ema: "):
        loaded(saved({"model": state(), "ema": average}))
    with pytest.raises(InputError, match="must be those of"):
        loaded(saved({"ema": average}))


def test_takes_the_weights_of_the_member_with_all_parameters(
    saved: Saved, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert loaded(saved({"state_dict": renamed("model.")}), module=Wrapper) == {2.0}
    assert "the weights are those of the detector's member net; anchors stay" in caplog.text

    class Both(Wrapper):
        def __init__(self) -> None:
            super().__init__()
            self.more = nn.Linear(1, 1)

    with pytest.raises(
        InputError, match=r"2 of 10 .* such as more\.weight|no tensor conv\.weight but net\.conv"
    ):
        loaded(saved(state()), module=Both)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_tensors_with_two_names_need_one(prefix: str, tmp_path: Path) -> None:
    tied = Tied()
    nn.init.constant_(tied.first.weight, 2.0)
    for bias in (tied.first.bias, tied.second.bias):
        nn.init.constant_(bias, 2.0)
    whole: nn.Module = nn.ModuleDict({"module": tied}) if prefix else tied
    safetensors.torch.save_model(whole, str(tmp_path / "w.safetensors"))
    assert len(safetensors.torch.load_file(tmp_path / "w.safetensors")) == 3
    assert loaded(tmp_path / "w.safetensors", module=Tied) == {2.0}


def test_tensors_with_two_names_must_be_one(saved: Saved) -> None:
    torn = state(2.0, Tied) | {"second.weight": torch.ones(3, 3)}
    with pytest.raises(InputError, match=r"first\.weight and second\.weight are one tensor in the detector"):
        loaded(saved(torn), module=Tied)


def test_hooks_of_the_module_may_rename(saved: Saved) -> None:
    class Old(Net):
        def _load_from_state_dict(self, state_dict: State, prefix: str, *others: Any) -> None:
            for name in [name for name in state_dict if name.startswith("fc.")]:
                state_dict[name.replace("fc", "head")] = state_dict.pop(name)
            super()._load_from_state_dict(state_dict, prefix, *others)

    assert loaded(saved({n.replace("head", "fc"): t for n, t in state().items()}), module=Old) == {2.0}


def test_modules_that_torch_may_read(saved: Saved) -> None:
    net = Net()
    net.load_state_dict(state())
    allowed: list[Any] = [Net, nn.Conv2d, nn.BatchNorm2d, nn.Linear]
    path = saved({"model": net, "epoch": 3})
    with pytest.raises(InputError, match=r"got objects of .*: .* torch\.save\(model\.state_dict"):
        loaded(path)
    with torch.serialization.safe_globals(allowed):
        assert loaded(path) == {2.0}


PART = {"features.weight": torch.ones(2, 1, 8, 8)}


class Landmarks2(Landmarks):
    def __init__(self) -> None:
        super().__init__(2)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (
            {"net.features.weight": torch.ones(2, 1, 8, 8)},
            r"net: .*1 of 2 .* missing, such as features\.bias \[2\]",
        ),
        (
            {**state(1.0, Landmarks2), "extra": torch.ones(1)},
            r": 1 tensors are not in .*, such as extra \[1\]$",
        ),
        # Of two alike, the one that lies less deep is named.
        ({"near": PART, "far": {"deep": {**PART}}}, r"near: .*1 of 2 .* missing"),
        ({"model": nn.ReLU()}, "got objects of torch.nn.modules.activation.ReLU: reading"),
        ({"epoch": 3}, "must hold a state dict"),
        ({"epoch": np.int64(3)}, r"got objects of numpy\..* and 1 more classes: reading"),
        ({**state(1.0, Landmarks2), "features.bias": torch.ones(2).to_sparse()}, r"bias, .* is \[2\] sparse"),
        (
            {**state(1.0, Landmarks2), "features.bias": torch.ones(2, device="meta")},
            r"bias, .* is \[2\] without numbers",
        ),
        ({"weight": torch.ones(1)}, r"has no tensor weight but features\.weight: save"),
        ([*state(1.0, Landmarks2).values()], r"has no names: give --weights-key \. if it is in the order of"),
    ],
)
def test_names_what_does_not_fit(checkpoint: Any, message: str, saved: Saved) -> None:
    with pytest.raises(InputError, match=rf"w\.pt.*{message}"):
        loaded(saved(checkpoint), module=Landmarks2)


def test_other_files_are_refused(tmp_path: Path) -> None:
    class NoTensors(nn.Module):
        pass

    (tmp_path / "text.pt").write_text("text")
    with pytest.raises(InputError, match="is neither a safetensors file"):
        loaded(tmp_path / "text.pt")
    script = [("a/constants.pkl", bytes(9999)), ("a/version", b"3\n"), ("a/data.pkl", b"x")]
    (tmp_path / "script.pt").write_bytes(archive_of(script))  # whose code may be compressed
    with pytest.raises(InputError, match="it is a TorchScript file"):
        loaded(tmp_path / "script.pt")
    torch.save(state(), tmp_path / "w.pt")
    with pytest.raises(InputError, match="must come with a detector that has weights"):
        loaded(tmp_path / "w.pt", module=NoTensors)
