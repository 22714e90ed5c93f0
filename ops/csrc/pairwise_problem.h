// A batch of matrices of boxes, as the pairwise kernels of both backends take it: raw memory, no ATen.
#pragma once

#include "slot_view.h"

namespace lensbox {

// boxes1 [batch, rows, 4] and boxes2 [batch, columns, 4]; their GIoU is [batch, rows, columns].
struct PairwiseProblem {
  SlotView boxes1, boxes2;
  int64_t batch, rows, columns;
};

}  // namespace lensbox
