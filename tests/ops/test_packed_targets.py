"""PackedTargets returns the rows that were packed, from one buffer."""

import pytest
import torch
from torch.utils.data import DataLoader

from lensbox.ops import PackedTargets, collate_packed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64])
@pytest.mark.parametrize("columns", [4, 5])
@pytest.mark.parametrize(("counts", "offsets"), [((3, 0, 1, 0), [0, 3, 3, 4, 4]), ((0, 0, 0), [0] * 4)])
def test_packed_rows_are_returned(
    device: torch.device, dtype: torch.dtype, columns: int, counts: tuple[int, ...], offsets: list[int]
) -> None:
    rows = [(torch.rand(n, columns) * 200).to(dtype) for n in counts]
    packed = PackedTargets.pack(rows).to(device)
    assert packed.offsets.tolist() == offsets
    assert packed.offsets.dtype == torch.int64
    assert torch.equal(packed.values.cpu(), torch.cat(rows))
    assert packed.values.untyped_storage().data_ptr() == packed.offsets.untyped_storage().data_ptr()
    assert packed.values.data_ptr() % 16 == 0


@pytest.mark.gpu
def test_pinned_memory_is_copied_in_one_transfer() -> None:
    packed = PackedTargets.pack([torch.rand(3, 4), torch.rand(2, 4)]).pin_memory()
    assert packed.buffer.is_pinned()
    assert packed.values.is_pinned()
    packed.to("cuda")  # initialise CUDA before the profile begins
    activities = [torch.profiler.ProfilerActivity.CUDA]
    # Without acc_events, torch 2.11 warns that it would drop the events of earlier cycles.
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        moved = packed.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
    # "Memcpy HtoD (Pinned -> Device)" is the copy; "cudaMemcpyAsync" is the call that starts the copy.
    assert sum(event.key.startswith("Memcpy") for event in profile.events()) == 1
    assert torch.equal(moved.values.cpu(), packed.values)


def test_in_a_data_loader() -> None:
    samples = [(torch.full((1, 2, 2), i), torch.full((i, 4), float(i))) for i in range(5)]
    images, targets = next(iter(DataLoader(samples, batch_size=5, collate_fn=collate_packed)))  # type: ignore[arg-type]
    assert images.shape == (5, 1, 2, 2)
    assert targets.offsets.tolist() == [0, 0, 1, 3, 6, 10]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "rows must hold at least one image, got none"),
        ([torch.zeros(2, 4), torch.zeros(2, 5)], r"rows must all be \[n, 4\].*got \[2, 5\].*image 1"),
        ([torch.zeros(2, 0)], r"at least one column, got \[2, 0\] for image 0"),
        ([torch.zeros(2, 4), torch.zeros(2, 4).int()], "got .* of torch.int32 for image 1"),
    ],
)
def test_rejects_bad_rows(rows: list[torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PackedTargets.pack(rows)
