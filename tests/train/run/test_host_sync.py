"""A captured step must neither copy from the host nor read from the device. It shows without a GPU: with
every tensor on the meta device, a CPU tensor in the step would be a copy, and reading a value fails."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lensbox.model import DetectorConfig, FaceDetector
from lensbox.train.data.image_store import SIDE, StoreTensors
from lensbox.train.loss.assignment import make_levels
from lensbox.train.loss.detection_loss import detection_loss
from lensbox.train.loss.teachers import teach
from lensbox.train.settings import TrainConfig
from lensbox.train.views.draws import draw, view_counts
from lensbox.train.views.make_views import make_views

META = torch.device("meta")


class HostTraffic(TorchFunctionMode):
    """Collects calls that make a tensor of Python numbers (copied to a device), read one, or mix devices."""

    MAKERS = ("tensor", "as_tensor", "asarray", "new_tensor", "from_numpy")
    READERS = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", str(function))
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        index = args[1] if name in ("__getitem__", "__setitem__") else ()
        lists = any(isinstance(part, list) for part in (index if isinstance(index, tuple) else (index,)))
        if name in (*self.MAKERS, *self.READERS) or lists or any(x.device.type == "cpu" for x in tensors):
            self.found.append(name)
        return function(*args, **kwargs)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[:, [0, 1]],
        lambda x: x[[0, 1]],
        lambda x: x.new_tensor([1.0]),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: x + torch.ones(()),
    ],
)
def test_the_watch_sees_copies(use: Callable[[Tensor], Tensor]) -> None:
    with HostTraffic() as traffic:
        use(torch.zeros(4, 4, device=META))
    assert traffic.found


CHANGES = {"soft_chance": 0.5, "light_chance": 0.5, "cover_chance": 0.5, "rotate_chance": 0.5}


@pytest.mark.parametrize("changes", [{}, CHANGES], ids=["plain", "all changes"])
def test_views_net_loss_and_backward_stay_on_the_device(changes: Any) -> None:
    config = TrainConfig().replace(batch_size=16, **changes)
    counts = view_counts(config)
    store = StoreTensors(
        torch.zeros(5, SIDE, SIDE, dtype=torch.uint8, device=META),
        torch.zeros(5, 2, device=META),
        torch.zeros(5, 256, 4, device=META),
        torch.zeros(5, dtype=torch.int64, device=META),
        torch.zeros(5, dtype=torch.int64, device=META),
        torch.zeros(5, device=META),
        torch.zeros(5, device=META),
    )
    model = FaceDetector(DetectorConfig.named("small")).to(META)
    levels = make_levels((4, 8, 16, 32), config.assignment.level_sizes, 256)
    switch = torch.ones((), device=META)
    with HostTraffic() as traffic:
        views = make_views(store, draw(counts, switch, META), counts, config)
        boxes, logits = model(views.images)
        taught = teach([model], [[model] * 4], views.images)
        losses = detection_loss(boxes, logits, views.targets, views.ignored, levels, config, taught)
        losses.total.backward()
    assert traffic.found == []
    assert views.images.shape == (16, 1, 256, 256)
    assert all(p.grad is not None for p in model.parameters())
