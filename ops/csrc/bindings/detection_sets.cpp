// The comparison of detections as sets, for Python. Runs on the CPU, and nothing here is traced.

#include "../detection_sets.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "../checks.h"

namespace lensbox {
namespace {

using at::Tensor;

std::vector<double> numbers_of(const Tensor& tensor) {
  const Tensor numbers = plain_memory(tensor.to(at::kDouble));
  return {numbers.const_data_ptr<double>(), numbers.const_data_ptr<double>() + numbers.numel()};
}

// tensors: boxes [n, 4], scores [n], labels [n], and further outputs [n, ...], on the CPU.
DetectionSet detection_set(const char* name, at::TensorList tensors, size_t extras, bool is_full) {
  TORCH_CHECK_VALUE(tensors.size() == 3 + extras, name, " must be boxes, scores, labels and ", extras,
                    " further outputs, got ", tensors.size(), " tensors");
  const int64_t count = tensors[1].numel();
  for (const Tensor& tensor : tensors)
    TORCH_CHECK_VALUE(tensor.is_cpu() && !tensor.is_complex() && tensor.dim() > 0 && tensor.size(0) == count,
                      name, " must have ", count, " detections on the CPU, got ", tensor.toString(), " ",
                      tensor.sizes());
  TORCH_CHECK_VALUE(
      tensors[0].sizes() == at::IntArrayRef({count, 4}) && tensors[1].dim() == 1 && tensors[2].dim() == 1,
      name, " must have boxes [n, 4], scores [n] and labels [n], got ", tensors[0].sizes(), ", ",
      tensors[1].sizes(), " and ", tensors[2].sizes());
  DetectionSet set{numbers_of(tensors[0]), numbers_of(tensors[1]), numbers_of(tensors[2]), {}, is_full};
  for (size_t e = 0; e < extras; ++e)
    set.extras.push_back(numbers_of(tensors[3 + e]));
  return set;
}

// limits: of boxes in pixels, relative, of scores, of IoU. is_full: whether all slots of the detector are
// used, for each side. Return box differences of the pairs; scores, by_rounding, unexplained_count, moved and
// score_moved; the unexplained.
std::tuple<std::vector<double>, std::vector<double>, std::vector<std::string>> compare(
    at::TensorList expected, at::TensorList actual, double score_threshold, double iou_threshold,
    at::ArrayRef<double> limits, at::ArrayRef<double> extra_limits, std::array<bool, 2> is_full) {
  TORCH_CHECK_VALUE(limits.size() == 4, "limits must be four numbers, got ", limits);
  const DetectionSet one = detection_set("expected", expected, extra_limits.size(), is_full[0]);
  const DetectionSet other = detection_set("actual", actual, extra_limits.size(), is_full[1]);
  for (size_t e = 0; e < extra_limits.size(); ++e)
    TORCH_CHECK_VALUE(one.count() == 0 || other.count() == 0 || one.size(e) == other.size(e),
                      "further outputs must have the same shape, got ", expected[3 + e].sizes(), " and ",
                      actual[3 + e].sizes());
  const SetDifference found(
      one, other,
      {score_threshold, iou_threshold, limits[0], limits[1], limits[2], limits[3], extra_limits.vec()});
  return {found.boxes,
          {found.scores, static_cast<double>(found.by_rounding), static_cast<double>(found.unexplained_count),
           found.moved, found.score_moved},
          found.unexplained};
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_FRAGMENT(lensbox_runtime, m) {
  m.def(
      "compare(Tensor[] expected, Tensor[] actual, float score_threshold, float iou_threshold, float[] "
      "limits,"
      " float[] extra_limits, bool[2] is_full) -> (float[], float[], str[])",
      lensbox::compare);
}
