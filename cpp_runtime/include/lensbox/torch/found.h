#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lensbox {

// What was found in a batch of B, on the device of the detector. Of the K slots of each, the first `counts`
// hold a detection, best first; what the others hold means nothing.
struct Found {
  at::Tensor boxes;                     // [B, K, 4]: x1, y1, x2, y2 in pixels
  at::Tensor scores;                    // [B, K]
  at::Tensor counts;                    // [B]
  at::Tensor labels = {};               // int64 [B, K]; undefined where there are no classes
  std::vector<at::Tensor> extras = {};  // float32 or int64 [B, K, ...], in the order of Metadata::extras
};

}  // namespace lensbox
