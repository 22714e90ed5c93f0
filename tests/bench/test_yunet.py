"""The yardstick: as large as the published network, and with its outputs."""

import torch

from lensbox.bench.detector.cost import network_cost
from lensbox.bench.detector.yunet import OUTPUTS, PUBLISHED_PARAMETERS, YuNet


def test_it_has_the_published_number_of_parameters() -> None:
    cost = network_cost(YuNet().eval(), torch.zeros(1, 3, 256, 256))
    assert cost.parameters == PUBLISHED_PARAMETERS == 75_856
    # By hand: 128 x 128 x (432 + 256 + 144) for the stem; the rest is of the same order.
    assert 70e6 < cost.multiply_accumulates < 100e6


def test_outputs_have_a_row_for_each_cell() -> None:
    with torch.no_grad():
        outputs = YuNet().eval()(torch.rand(2, 3, 256, 320) * 255)
    shapes = {name: list(output.shape) for name, output in zip(OUTPUTS, outputs, strict=True)}
    cells = {8: 32 * 40, 16: 16 * 20, 32: 8 * 10}
    values = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
    assert shapes == {
        f"{name}_{stride}": [2, cells[stride], values[name]] for name in values for stride in cells
    }


def test_classes_and_objects_are_probabilities() -> None:
    with torch.no_grad():
        outputs = dict(zip(OUTPUTS, YuNet().eval()(torch.rand(1, 3, 64, 64) * 255), strict=True))
    for name, output in outputs.items():
        if name.startswith(("cls", "obj")):
            assert 0 <= output.min() <= output.max() <= 1
