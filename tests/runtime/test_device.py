"""Which device a name means."""

import pytest
import torch

from lensbox.errors import DeviceError
from lensbox.runtime.device import choose_device

_needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@_needs_no_gpu
def test_cuda_without_a_gpu_is_refused() -> None:
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(DeviceError, match=r"got 'cuda' with torch .*: this torch was built"):
        choose_device("cuda")
