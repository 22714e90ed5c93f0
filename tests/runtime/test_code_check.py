"""The code check: what detectors need passes, and every way to torch's other operators is refused."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from damaged_files import rewritten
from torch import Tensor, nn

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.common.errors import ArtifactError
from lensbox.export.torchscript import script_and_freeze
from lensbox.runtime import code_check
from lensbox.runtime.artifact_file import METADATA_FILE
from lensbox.runtime.artifact_loading import load_artifact
from lensbox.runtime.code_check import ForeignCodeError, check_code
from lensbox.runtime.torchscript import quiet_torchscript


class AddsANumber(nn.Module):
    """Its code has one statement, for which tests put others."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 12345


def code_with(statement: str) -> tuple[bytes, bytes]:
    """The archive of a module whose `forward` begins with the statement, and the code in it."""
    content = io.BytesIO()
    with quiet_torchscript():
        torch.jit.save(torch.jit.script(AddsANumber()), content)
    codes: list[bytes] = []

    def change(entries: dict[str, bytes]) -> None:
        name = next(name for name in entries if name.endswith(".py"))
        old = "return torch.add(x, 12345)"
        assert old in entries[name].decode()
        entries[name] = entries[name].decode().replace(old, f"{statement}\n    return x").encode()
        codes.append(entries[name])

    return rewritten(content.getvalue(), change), codes[0]


# With these, torch writes the file.
WORKING = {
    "plain": 'torch.save(x, "PATH")',
    "other name": 't = torch\n    t.save(x, "PATH")',
    "name of the operator": 's = torch.save\n    s(x, "PATH")',
    "torch's second name": 'torch.autograd.save(x, "PATH")',
    "namespace": 'ops.aten.save(x, "PATH")',
    "second name of a namespace": 'ops.mine.autograd.save(x, "PATH")',
    "other name of ops": 'o = ops\n    o.aten.save(x, "PATH")',
    "other name of a namespace": 'o = ops.aten\n    o.save(x, "PATH")',
    "getattr": 'getattr(torch, "save")(x, "PATH")',
    "glued not in": 'y = (1 not intorch.save(x, "PATH"))',
    "glued is not": 'y = (1 is nottorch.save(x, "PATH"))',
    "after a number": 'y = 1.\n    torch.save(x, "PATH")',
    "triple quotes": 'y = """a" + "b"""\n    torch.save(x, "PATH")',
    "inside a dict": 'y = {"a": torch.save(x, "PATH")}',
    "inside a list": 'y = [torch.save(z, "PATH") for z in [x]]',
}


@pytest.mark.parametrize("statement", WORKING.values(), ids=WORKING.keys())
def test_ways_that_work_are_refused(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "written"
    archive, code = code_with(statement.replace("PATH", str(path)))
    with quiet_torchscript():
        torch.jit.load(io.BytesIO(archive))(torch.zeros(1))
    assert path.exists(), "torch does not do this any more: look for what it does instead"
    with pytest.raises(ForeignCodeError, match=r"^x\.py, line \d+: "):
        check_code("x.py", code, ())


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ('x.save("p")', r"it uses \.save, which may call torch\.save"),
        ("(x)\n.seed()", r"it uses \.seed"),
        ('getattr(x, "save")("p")', r"it uses \.save"),
        ('getattr(x, "sa" "ve")("p")', "getattr other than"),
        ('getattr(x, "sa\\x76e")("p")', "getattr other than"),
        ('getattr(x, "save", 1)("p")', "getattr other than"),
        ("g = getattr", "getattr other than"),
        ("getattr(", "getattr other than"),
        ('torch.from_file("p", True, 10)', r"torch\.from_file"),
        ("torch.manual_seed(1)", r"torch\.manual_seed"),
        ("torch.set_(x, x)", r"torch\.set_"),
        ("torch.as_strided(x, [9], [9], 9)", r"torch\.as_strided"),
        ("torch.resize_(x, [9])", r"torch\.resize_"),
        ("fork(x)", "it uses fork"),
        ("awaitable(x)", "it uses awaitable"),
        ("ops.prim.rpc_async(x)", r"ops\.prim\.rpc_async"),
        ("ops.c10d.barrier(x)", r"ops\.c10d\.barrier"),
        ("ops.profiler._record_function_enter(x)", r"ops\.profiler"),
        ("ops.other.op(x)", r"ops\.other\.op"),
        ("a = __torch__", "__torch__ other than"),
        ("a = __torch__.torch", "__torch__ other than"),
        ("a : __torch__.torch.classes.a.B = x", "C\\+\\+ classes"),
        ("x = 0x1.save", "not as torch writes it"),
        ("x = 1 # torch", "not as torch writes it"),
        ("x = 'a'", "not as torch writes it"),
        ("x.\\\nsave", "not as torch writes it"),
        ("x = .5", "not as torch writes it"),
        ("é = 1", "not as torch writes it"),
        ("x\t= 1", "not as torch writes it"),
        ("x = " + "(" * 64, "nested too deeply"),
        ("x" + ".t()" * 1500, "nested too deeply"),
        ("x = " + "- " * 3000 + "1", "nested too deeply"),
        ("x = " + ("(" * 30 + "1" + "+1" * 100 + ")" * 30 + "+") * 40 + "1", "nested too deeply"),
        ("x = 1\n" + " " * 500 + "y = 1", "nested too deeply"),
        ("if x:\n  y\n" + "elif x:\n  y\n" * 2001, "nested too deeply"),
    ],
)
def test_other_ways_are_refused(statement: str, message: str) -> None:
    with pytest.raises(ForeignCodeError, match=message):
        check_code("x.py", statement.encode(), ("c10d::barrier(Tensor x) -> ()",))


@pytest.mark.parametrize(
    "statement",
    [
        "x = torch.add(y, 1., alpha=-1)",
        "ops.lensbox.any_op_of_ours(x)",
        "ops.mine.op(x)",
        'ops.prim.RaiseException("torch.save", "builtins.ValueError")',
        '_0 = "torch.save(\\"p\\") # fork, ops, it\'s"',
        'y = getattr(self.layers, "0")',
        "with __torch__.torch.autograd.grad_mode.no_grad.__new__(__torch__.a.B):\n  pass",
        "x = annotate(List[float], [" + "-1.5e-05, " * 5000 + "2j])",
        "for _1 in range(3):\n  y = torch.append(x.values, inf)",
    ],
)
def test_what_detectors_need_passes(statement: str) -> None:
    check_code("x.py", statement.encode(), ("mine::op(Tensor x) -> Tensor",))


class WritesWhileLoading(nn.Module):
    """Restores itself by code of its own."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.path, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.path = state[0]
        self.training = state[1]
        torch.save(torch.ones(3), self.path)


def test_code_is_refused_before_it_runs_while_loading(artifact_path: Path, tmp_path: Path) -> None:
    written, path = tmp_path / "written", tmp_path / "setstate.pt"
    metadata = load_artifact(artifact_path).metadata.to_json()
    with quiet_torchscript():
        module = torch.jit.script(WritesWhileLoading(str(written)))
        torch.jit.save(module, path, _extra_files={METADATA_FILE: metadata})
    message = r"setstate\.pt holds code that no detector needs, .*, line \d+: it uses torch\.save\..* trusted"
    with pytest.raises(ArtifactError, match=message):
        load_artifact(path)
    assert not written.exists()
    with pytest.raises(ArtifactError, match="lacks the methods"):
        load_artifact(path, trusted=True)
    assert written.exists()


class Detector(nn.Module):
    """What other detectors do: buffers, containers, dicts, strings, loops, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Dropout(0.1))
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.recurrent = nn.GRU(4, 4, batch_first=True)

    def forward(self, images: list[Tensor], names: dict[str, int]) -> list[dict[str, Tensor]]:
        found: list[dict[str, Tensor]] = []
        for index, image in enumerate(images):
            features = self.layers(nn.functional.interpolate(image[None], scale_factor=2.0, mode="bilinear"))
            tokens = self.recurrent(self.attention(features.flatten(2).transpose(1, 2)))[0]
            scores, order = tokens[0, :, 0].sigmoid().sort(descending=True)
            boxes = torch.cat([tokens[0, order, :2], tokens[0, order, :2] + 1], dim=1).clamp(min=0)
            keep = torch.where(scores > 0.5)[0]
            if keep.numel() == 0 and "fallback" in names:
                keep = torch.arange(1, device=scores.device)
            grid = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")[0]
            pooled = nn.functional.adaptive_max_pool2d(features, 1).view(-1)
            sampled = nn.functional.grid_sample(features, torch.zeros(1, 2, 2, 2))
            print(f"image {index}: {int(keep.numel())} found")
            found.append(
                {
                    "boxes": boxes[keep],
                    "scores": scores[keep],
                    "x": grid,
                    "y": pooled,
                    "z": sampled.topk(1)[0],
                }
            )
        return found


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "write",
    [lambda module: script_and_freeze(module, []), lambda module: torch.jit.script(module)],
    ids=["frozen", "not frozen"],
)
def test_other_detectors_pass(write: Callable[[nn.Module], torch.jit.ScriptModule]) -> None:
    content = io.BytesIO()
    with quiet_torchscript():
        torch.jit.save(write(Detector().eval()), content)
    with zipfile.ZipFile(content) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py")]
        assert names
        for name in names:
            check_code(name, archive.read(name), ())


def test_the_list_names_operators_of_this_torch() -> None:
    # Other releases of torch may lack some.
    names = code_check._allowed_ops()
    known = {schema.name for schema in torch._C._jit_get_all_schemas()}
    assert len(names) > 1000
    assert len(names - known) < 30, names - known
    assert {name.split("::")[0] for name in names} == {"aten", "prim"}
    for name in ("save", "from_file", "manual_seed", "set_", "as_strided", "resize_", "autograd", "backward"):
        assert f"aten::{name}" not in names
