"""The pickles: what torch writes passes; what it would take on trust is refused."""

import io
import pickle
import time
import zipfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from damaged_files import rewritten
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.runtime.artifact_loading import load_artifact
from lensbox.runtime.pickle_check import DamagedPickleError, check_pickle
from lensbox.runtime.torchscript import quiet_torchscript


class Part(nn.Module):
    grid: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.arange(12).view(3, 4).t()[1:])
        self.register_buffer("scalar", torch.tensor(2.5, dtype=torch.float64))
        self.register_buffer("none", torch.zeros(0, 4))
        self.register_buffer("wide", torch.ones(1).expand(7))
        self.weight = nn.Parameter(torch.randn(3, 2).half())
        self.names: dict[str, int] = {"a": 1, "b": -(2**40)}
        self.sizes: list[int] = [1, 2, 3]
        self.ratios: list[float] = [0.5]
        self.flags: list[bool] = [True]
        self.tensors: list[Tensor] = [torch.zeros(2)]
        self.deep: list[list[tuple[int, str]]] = [[(1, "x")], []]
        self.device = torch.device("cpu")
        self.pair = (3, torch.ones(1))
        self.maybe: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        return x + self.grid.sum() + self.sizes[0] + self.names["a"] + self.pair[0] + self.weight.sum()


class Side(Enum):
    LEFT = 1
    RIGHT = 2


class Sided(nn.Module):
    side: Side

    def __init__(self) -> None:
        super().__init__()
        self.side = Side.RIGHT

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if self.side == Side.RIGHT else x


def pickles_of(module: nn.Module) -> tuple[dict[str, bytes], dict[str, bytes]]:
    content = io.BytesIO()
    with quiet_torchscript():
        torch.jit.save(torch.jit.script(module), content)
    with zipfile.ZipFile(content) as archive:
        entries = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    return {name: data for name, data in entries.items() if name.endswith("pkl")}, entries


def test_values_of_enumerations_pass() -> None:
    pickles, entries = pickles_of(Sided())
    check_pickle(pickles["data.pkl"], "data", entries)


def test_what_is_called_often_is_looked_at_once() -> None:
    calls = b"(" + b"N" * 30_000 + b"tq\0c__torch__\nSide\nq\1" + b"h\1h\0R" * 6_000
    start = time.process_time()
    with pytest.raises(DamagedPickleError):  # its stack is not empty at its end
        check_pickle(b"\x80\2" + calls + b".", "data", {})
    assert time.process_time() - start < 2  # looking again each time would take ten or more


def test_what_torch_writes_passes() -> None:
    module = nn.Sequential(Part(), Part())
    module.append(module[0])  # one part twice
    pickles, entries = pickles_of(module)
    assert len(pickles) > 3
    for name, data in pickles.items():
        check_pickle(data, "constants" if name == "constants.pkl" else "data", entries)


def tensor_pickle(
    kind: str = "FloatStorage",
    key: str = "0",
    count: int = 6,
    offset: int = 0,
    sizes: tuple[int, ...] = (2, 3),
    strides: tuple[int, ...] = (3, 1),
) -> bytes:
    """A tuple of one tensor, as torch writes it."""

    def plain(value: Any) -> bytes:
        # Protocol 2 without its first two bytes and STOP, and without memo.
        pickler_data = io.BytesIO()
        pickler = pickle.Pickler(pickler_data, 2)
        pickler.fast = True
        pickler.dump(value)
        return pickler_data.getvalue()[2:-1]

    storage = (
        b"(" + plain("storage") + f"ctorch\n{kind}\n".encode() + plain(key) + plain("cpu") + plain(count)
    )
    shape = plain(offset) + plain(sizes) + plain(strides)
    hooks = b"ccollections\nOrderedDict\n)R"
    return (
        b"\x80\x02(ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"tQ" + shape + b"\x89" + hooks + b"tRt."
    )


RECORDS = {"constants/0": bytes(24)}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"sizes": (3, 2), "strides": (1, 3)},
        {"sizes": (), "strides": (), "offset": 5},
        {"sizes": (0, 9), "strides": (9, 1)},
        {"sizes": (1000,), "strides": (0,)},
        {"kind": "BFloat16Storage", "count": 12},
    ],
)
def test_tensors_inside_their_record_pass(arguments: dict[str, Any]) -> None:
    check_pickle(tensor_pickle(**arguments), "constants", RECORDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 7}, "constants/0 must hold 7 numbers of 4 bytes, got 24 bytes"),
        ({"kind": "DoubleStorage"}, "constants/0 must hold 6 numbers of 8 bytes, got 24 bytes"),
        ({"count": -1}, "must hold -1 numbers"),
        ({"key": "1"}, "need the entry 'constants/1', which is not there"),
        ({"key": "../data/0"}, "which is not there"),
        ({"kind": "QInt8Storage"}, "names 'torch QInt8Storage'"),
        ({"offset": 1}, r"sizes \[2, 3\], strides \[3, 1\] and offset 1 in a storage of 6"),
        ({"sizes": (3, 3)}, "in a storage of 6"),
        ({"strides": (4, 1)}, "in a storage of 6"),
        ({"strides": (-3, 1)}, "none can have"),
        ({"sizes": (2**62, 2**62), "strides": (4, 1)}, "in a storage of 6"),
        ({"strides": (1,)}, "none can have"),
        ({"offset": -1}, "none can have"),
        ({"offset": "0"}, "not described as torch does"),
    ],
)
def test_tensors_beyond_their_record_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DamagedPickleError, match=message):
        check_pickle(tensor_pickle(**arguments), "constants", RECORDS)


class Payload:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return print, ("payload",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps(Payload(), 2), "names '__builtin__ print'"),
        (pickle.dumps({1: 2}, 4), "opcode"),
        (b"", "cut off"),
        (b"\x80\x02", "cut off"),
        (b"\x80\x02).more", "bytes follow"),
        (b"\x80\x02.", "stack is not empty|too early"),
        (b"\x80\x02)).", "not empty"),
        (b"\x80\x02\x85.", "too early"),
        (b"\x80\x02t.", "too early"),
        (b"\x80\x02(.", "where a value must be"),
        (b"\x80\x02h\0.", "refers to what is not there"),
        (b"\x80\x02)r\xff\xff\xff\x7f.", "remembers what is not there"),
        (b"\x80\x02q\0.", "remembers what is not there"),
        (b"\x80\x02K\x00)R.", "calls what is no function"),
        (b"\x80\x02ccollections\nOrderedDict\n.", "where a value must be"),
        (b"\x80\x02ccollections\nOrderedDict\nK\x01\x85R.", "dict that is not empty"),
        (b"\x80\x02c__torch__.torch.classes.a\nB\n)\x81)b.", "names"),
        (b"\x80\x02c__torch__.a\nB\n)\x81.", "where a value must be"),
        (b"\x80\x02K\x01)\x81)b.", "no class"),
        (b"\x80\x02)" + b"\x85" * 100 + b".", "more than 64 levels"),
        (b"\x80\x02]q\0h\0a.", "no new list"),
        (b"\x80\x02]q\0(]q\1h\0t0.", "opcode"),
        (b"\x80\x02}K\x01a.", "no new list"),
        (b"\x80\x02}(K\x01u.", "without a value"),
        (b"\x80\x02\x8a\x09" + bytes(9) + b".", "64 bits"),
        (b"\x80\x02X\xff\xff\0\0ab.", "cut off"),
        (
            b"\x80\x02ctorch.jit._pickle\nrestore_type_tag\n(K\1X\x21\0\0\0" + b"[" * 33 + b"tR.",
            "has the type",
        ),
    ],
)
def test_what_torch_does_not_write_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DamagedPickleError, match=message):
        check_pickle(data, "constants", RECORDS)


def test_shared_tuples_cost_nothing() -> None:
    doubling = b"\x80\x02)q\0" + b"".join(
        b"h%bh%b\x86q%b" % (bytes([i]), bytes([i]), bytes([i + 1])) for i in range(60)
    )
    with pytest.raises(DamagedPickleError, match="not empty"):
        check_pickle(doubling + b".", "constants", RECORDS)


def test_a_short_weight_with_a_right_checksum_is_refused(artifact_path: Path, tmp_path: Path) -> None:
    def change(entries: dict[str, bytes]) -> None:
        name = max((name for name in entries if "/constants/" in name), key=lambda name: len(entries[name]))
        entries[name] = entries[name][:-4]

    path = tmp_path / "short.pt"
    path.write_bytes(rewritten(artifact_path.read_bytes(), change))
    message = r"short\.pt is damaged: its entry constants\.pkl: .*constants/\d+ must hold \d+ numbers of 4"
    with pytest.raises(ArtifactError, match=message):
        load_artifact(path)
