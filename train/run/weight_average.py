"""The exponential average of a model's weights, which is what a run delivers."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from lensbox.model import FaceDetector
from lensbox.train.config.settings import TrainConfig
from lensbox.train.data.image_store import StoreTensors
from lensbox.train.run.arithmetic import Arithmetic
from lensbox.train.views.draws import draw, plain_views, view_counts
from lensbox.train.views.make_views import make_views


class WeightAverage:
    """A detector that follows the one being trained.

    Attributes:
        detector: has the averaged weights, in eval mode.
    """

    def __init__(self, model: FaceDetector) -> None:
        self.detector = copy.deepcopy(model).eval().requires_grad_(False)
        self._learned = floating_point_state(model)
        self._averaged = floating_point_state(self.detector)

    @torch.no_grad()
    def update(self, weight: Tensor) -> None:
        """average += weight · (model - average), batch norm's statistics included."""
        difference = torch._foreach_sub(self._learned, self._averaged)
        torch._foreach_mul_(difference, weight)
        torch._foreach_add_(self._averaged, difference)

    def recalibrate(self, store: StoreTensors, config: TrainConfig, arithmetic: Arithmetic) -> None:
        """Measures the average's batch-norm statistics anew, on whole photographs.

        The average of many nets' statistics is not the statistics of the average net (Izmailov et al. 2018,
        arXiv:1803.05407): with a high rate and a long average that cost several points of precision. And
        whole photographs are what the detector will see, augmented views are not.
        """
        plain, device = plain_views(config), arithmetic.device
        counts, no_mosaics = view_counts(plain), torch.zeros((), device=device)
        generator = torch.Generator(device).manual_seed(config.seed)  # training draws go on as ever
        batches = -(-config.average.recalibration_views // config.optimizer.batch_size)
        draws = (draw(counts, no_mosaics, device, generator) for _ in range(batches))
        if batches:
            views = (make_views(store, each, counts, plain) for each in draws)
            update_bn((arithmetic.lay_out(each.images) for each in views), self.detector)


def floating_point_state(model: torch.nn.Module) -> list[Tensor]:
    """Weights and statistics, but not batch norm's counters."""
    return [value for value in model.state_dict(keep_vars=True).values() if value.is_floating_point()]
