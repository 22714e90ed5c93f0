// From a torch tensor to the SlotView that the kernels take.
#pragma once

#include <ATen/core/Tensor.h>

#include "pairwise_problem.h"
#include "slot_view.h"

namespace lensbox {

// A tensor [..., 4]: one slot a box.
SlotView box_slots(const at::Tensor& boxes);

// A tensor [...]: one slot a number.
SlotView number_slots(const at::Tensor& numbers);

// [..., N, 4] and [..., M, 4], whose leading dimensions are broadcast against each other.
PairwiseProblem pairwise_problem(const at::Tensor& boxes1, const at::Tensor& boxes2);

}  // namespace lensbox
