"""Copies of a detector: without hooks, and networks in float16 and bfloat16."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_detectors import Brightest, Named
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from lensbox.common.errors import ArtifactError
from lensbox.export import save_artifact
from lensbox.export.detector.copies import in_precision, plain_copy
from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.export.formats.torchscript import script_and_freeze
from lensbox.model import DetectorSpec
from lensbox.runtime.torchscript import quiet_torchscript


class Filtered(Brightest):
    """Filter the canvas with a convolution, whose weight a hook may compute."""

    def __init__(self, wrap: Callable[[nn.Module], Any] = lambda layer: layer) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Conv2d(1, 1, 3, padding=1)
        self.layer = wrap(self.layer)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        filtered = self.layer(images.float() / 255).sigmoid() * 255
        return super().detect(filtered.byte(), score_threshold, iou_threshold)


def assert_alike(copied: Any, detector: Filtered) -> None:
    canvases = torch.randint(0, 256, (3, 1, 64, 64), dtype=torch.uint8)
    torch.testing.assert_close(copied.detect(canvases, 0.2, 0.5), detector.detect(canvases, 0.2, 0.5))


@pytest.mark.parametrize(
    "wrap",
    [
        weight_norm,
        spectral_norm,
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
        torch.compile,
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_computed_weights_become_parameters(wrap: Callable[[nn.Module], Any]) -> None:
    detector = Filtered(wrap).eval()
    if wrap is not torch.compile:  # (compiling takes a minute)
        detector.layer(torch.zeros(1, 1, 8, 8)).sum().backward()  # leaves a weight with a gradient
    copied: Any = plain_copy(detector)
    assert type(copied.layer) is nn.Conv2d
    assert sorted(copied.state_dict()) == ["layer.bias", "layer.weight"]
    if wrap is not torch.compile:
        assert_alike(copied, detector)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch copies scripted modules so
def test_scripted_parts_stay() -> None:
    with quiet_torchscript():
        detector = Filtered(torch.jit.script).eval()
    assert_alike(plain_copy(detector), detector)


def test_names_tensors_that_cannot_be_copied() -> None:
    detector: Any = Brightest()
    detector.kept = [torch.ones(1, requires_grad=True) * 2]
    with pytest.raises(ArtifactError, match=r"copy\.deepcopy fails: .* Detach tensors that it keeps"):
        plain_copy(detector)


class Net(nn.Module):
    """Batch norms in a sequence and elsewhere, a shared convolution, other norms and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.specification = DetectorSpec(height=12, width=12)
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.shared = nn.Conv2d(8, 8, 3, groups=8, padding="same", bias=False)
        self.levels = nn.ModuleList(
            nn.Sequential(self.shared, nn.BatchNorm2d(8, affine=affine)) for affine in (True, False)
        )
        self.conv, self.norm, self.last = nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.up, self.group = nn.ConvTranspose2d(8, 4, 2), nn.GroupNorm(2, 4)
        self.linear = nn.Linear(4, 5)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.running_mean, -1, 1)  # type: ignore[arg-type]
                nn.init.uniform_(layer.running_var, 0.5, 2)  # type: ignore[arg-type]
                if layer.affine:
                    nn.init.uniform_(layer.weight, 0.5, 1.5)
                    nn.init.uniform_(layer.bias, -1, 1)

    @torch.jit.export
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        x = self.first(images.to(self.conv.weight.device) / 255.0)
        for level in self.levels:
            x = x + level(x)
        x = self.norm(self.conv(x))
        x = self.group(self.up(x + self.last(x.relu())))
        found = self.linear(x.mean(dim=(2, 3))).float()
        counts = torch.ones(images.shape[0], dtype=torch.int32)
        return {"boxes": found[:, None, :4], "scores": found[:, 4:].sigmoid(), "counts": counts}


RANDOM = torch.Generator().manual_seed(1)
CANVASES = torch.randint(0, 256, (2, 3, 12, 12), dtype=torch.uint8, generator=RANDOM)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_are_converted_and_answers_change_by_rounding(dtype: str) -> None:
    net: Any = Net().eval()
    before = copy.deepcopy(net.state_dict())
    reduced: Any = in_precision(net, dtype)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    scripted: Any = script_and_freeze(DetectorWrapper(reduced))
    with torch.no_grad():
        wanted = net.detect(CANVASES, 0.0, 0.5)
        for found in (reduced.detect(CANVASES, 0.0, 0.5), scripted.detect(CANVASES, 0.0, 0.5)):
            for name in ("boxes", "scores"):
                value, exact = found[name], wanted[name]
                assert value.dtype == torch.float32
                error = float((value - exact).abs().max())
                assert 0 < error < 8 * torch.finfo(getattr(torch, dtype)).eps
    seen: dict[str, list[torch.dtype]] = {}
    for node in scripted.detect.inlined_graph.nodes():
        kind, inputs = node.kind().removeprefix("aten::"), list(node.inputs())
        if kind in ("conv2d", "_convolution", "conv_transpose2d", "linear"):
            values = [value.toIValue() for value in inputs[1:3]]
            seen.setdefault(kind, []).extend(value.dtype for value in values if isinstance(value, Tensor))
        elif kind in ("group_norm", "batch_norm"):
            seen.setdefault(kind, []).append(inputs[1 if kind == "batch_norm" else 2].toIValue().dtype)
    assert len(seen["batch_norm"]) == 1  # the norm without a convolution before it
    assert set(seen.pop("batch_norm") + seen.pop("group_norm")) == {torch.float32}
    assert seen.keys() == {"conv2d", "conv_transpose2d", "linear"}
    assert {value for dtypes in seen.values() for value in dtypes} == {getattr(torch, dtype)}


def test_float32_only_folds_batch_norms() -> None:
    net: Any = Net().eval()
    folded: Any = in_precision(net, "float32")
    assert [type(layer) for layer in folded.first] == [nn.Conv2d, nn.Identity, nn.ReLU]
    assert folded.levels[0][0] is not folded.levels[1][0]
    with torch.no_grad():
        found, wanted = folded.detect(CANVASES, 0.0, 0.5), net.detect(CANVASES, 0.0, 0.5)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


class Sequences(nn.Module):
    """Nine cells of a canvas as a sequence of eight numbers each, through a body."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.specification = DetectorSpec(height=12, width=12)
        self.stem, self.body, self.head = nn.Conv2d(3, 8, 4, stride=4), body, nn.Linear(8, 5)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        found = self.body(self.stem(images.float() / 255).flatten(2).transpose(1, 2))
        found = self.head(found[0] if isinstance(found, tuple) else found).float()
        scores, order = found[:, :, 4].sigmoid().sort(dim=1, descending=True)
        boxes = (8 * found[:, :, :4]).gather(1, order[:, :, None].expand(-1, -1, 4))
        return {"boxes": boxes, "scores": scores, "counts": (scores > score_threshold).sum(dim=1)}


class Attention(nn.MultiheadAttention):
    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        return super().forward(query=x, key=x, value=x, need_weights=False)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Embedding(9, 8)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.decoder(self.queries.weight.expand(x.shape[0], -1, -1), x)
        return found


class ReadsAttributes(nn.Module):
    """Code that reads numbers of its layers, as torchvision and timm do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x).view(x.shape[0], -1, self.linear.out_features) * (1 + self.norm.eps)
        return functional.layer_norm(x.float(), self.norm.normalized_shape, self.norm.weight, self.norm.bias)


class CallsFunctions(nn.Module):
    """Code that calls a function with the weights of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.deeper = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.deeper(functional.linear(x, self.linear.weight, self.linear.bias))
        return x.relu()


class TiedLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(8, 8), nn.Linear(8, 8)
        self.linear.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear(x) + self.table(torch.arange(1))[0]
        return found


BODIES: dict[str, Callable[[], nn.Module]] = {
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
    "encoder, norm first": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True),
    "encoder, gelu without bias": lambda: nn.TransformerEncoderLayer(
        8, 2, 16, activation="gelu", batch_first=True, bias=False
    ),
    "decoder": Decoder,
    "attention": lambda: Attention(8, 2, batch_first=True),
    "LSTM": lambda: nn.LSTM(8, 8, batch_first=True),
    "GRU": lambda: nn.GRU(8, 8, batch_first=True),
    "PReLU": lambda: nn.Sequential(nn.Linear(8, 8), nn.PReLU()),
    "RMSNorm": lambda: nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(8, 8)),
    "attributes": ReadsAttributes,
    "functions": CallsFunctions,
    "tied layers": TiedLayers,
}


def made(name: str) -> Sequences:
    torch.manual_seed(2)
    return Sequences(BODIES[name]()).eval()


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
def test_modules_that_read_their_layers(name: str, dtype: str) -> None:
    detector: Any = plain_copy(made(name))
    reduced: Any = in_precision(detector, dtype)
    with torch.no_grad():
        wanted, found = (one.detect(CANVASES, 0.0, 0.5)["scores"] for one in (detector, reduced))
    assert 0 < float((found - wanted).abs().max()) < 4 * torch.finfo(getattr(torch, dtype)).eps
    # Layers beside such modules are converted.
    assert reduced.stem.layer.weight.dtype == reduced.head.layer.weight.dtype == getattr(torch, dtype)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
def test_feed_forward_layers_of_an_encoder_are_converted() -> None:
    reduced: Any = in_precision(made("encoder"), "float16")
    layer = reduced.body.layers[0]
    assert layer.linear1.layer.weight.dtype == layer.linear2.layer.weight.dtype == torch.float16
    assert layer.self_attn.in_proj_weight.dtype == layer.norm1.layer.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("encoder", "torchscript"),
        *(
            pytest.param(name, kind, marks=pytest.mark.exhaustive)
            for kind in ("torchscript", "program")
            for name in BODIES
            if (name, kind) not in (("encoder", "torchscript"), ("LSTM", "program"))
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning")
def test_files_hold_modules_that_read_their_layers(name: str, kind: str, tmp_path: Path) -> None:
    metadata = save_artifact(made(name), tmp_path / "a", 0.01, kind=kind, dtype="float16")
    assert metadata.precision is not None


def test_hooks_need_a_trace(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="hooks convert the inputs of modules that stay in float32"):
        save_artifact(made("LSTM"), tmp_path / "a", 0.01, dtype="float16", trace=False)


class Alone(Sequences):
    """A function of the detector itself that takes one dtype."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8))
        self.matrix = nn.Parameter(torch.eye(8))

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        deep = (
            self.body(torch.zeros(1, 8))
            if self.body.weight.dtype != torch.float32
            else torch.zeros(1, 8).half()
        )
        functional.linear(deep, self.matrix)
        return super().detect(images, score_threshold, iou_threshold)


def test_names_the_line_that_takes_one_dtype() -> None:
    with pytest.raises(
        ArtifactError, match=r"in float16:\n  .*dtype.*test_copies\.py:\d+\): convert the input"
    ):
        in_precision(Alone().eval(), "float16")
