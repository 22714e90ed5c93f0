// In place of detect_graphs_cuda.cpp, where torch has no CUDA or its headers are not there.

#include <lensbox/error.h>

#include "captured_detect.h"
#include "torch_version.h"

namespace lensbox {

std::unique_ptr<DetectGraphs> record_detect_graphs(const DetectorModule& /*module*/,
                                                   const at::Tensor& /*canvas*/,
                                                   const std::vector<int64_t>& /*batch_sizes*/,
                                                   double /*score_threshold*/, double /*iou_threshold*/) {
  throw DeviceError(
      "CUDA graphs are not built into this program: build it where " + std::string(kTorchDescription) +
      " is one with CUDA and the CUDA toolkit's headers are found (-DLENSBOX_CUDA_INCLUDE_DIR=)");
}

}  // namespace lensbox
