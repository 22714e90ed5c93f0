// Tiles of large photographs, for the Python runtime: ../tiles.h computes them. Nothing here is traced.

#include "../tiles.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "../checks.h"

namespace lensbox {
namespace {

// Call a function of ../tiles.h, whose exceptions become Python's ValueError.
template <auto function, typename... Arguments>
auto tiles_call(Arguments... arguments) {
  try {
    return function(arguments...);
  } catch (const std::invalid_argument& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

void check_tiles(const Tensor& boxes, const Tensor& scores, const std::optional<Tensor>& labels,
                 at::IntArrayRef counts, at::IntArrayRef windows) {
  const auto is_on_cpu = [](const Tensor& values, at::ScalarType type) {
    return values.is_cpu() && values.scalar_type() == type;
  };
  TORCH_CHECK_VALUE(is_on_cpu(boxes, at::kFloat) && is_on_cpu(scores, at::kFloat) &&
                        (!labels || is_on_cpu(*labels, at::kLong)),
                    "boxes and scores must be float32 and labels int64, on the CPU");
  const int64_t count = scores.numel();
  const bool fits = boxes.sizes() == at::IntArrayRef({count, 4}) &&
                    scores.sizes() == at::IntArrayRef({count}) &&
                    (!labels || labels->sizes() == scores.sizes()) && windows.size() == 4 * counts.size();
  // A sum of the counts could overflow.
  int64_t left = count;
  const bool is_split =
      std::all_of(counts.begin(), counts.end(), [&](int64_t one) { return one >= 0 && (left -= one) >= 0; });
  TORCH_CHECK_VALUE(fits && is_split && left == 0, "counts must be the numbers of boxes in each window, got ",
                    counts, " for boxes ", boxes.sizes(), " and ", windows.size() / 4, " windows");
}

// Return the indices of the detections of a photograph, best first, int64 [n]. boxes: float32 [N, 4].
Tensor merge_tile_tensors(const Tensor& boxes, const Tensor& scores, const std::optional<Tensor>& labels,
                          at::IntArrayRef counts, at::IntArrayRef windows, int64_t width, int64_t height,
                          double iou_threshold) {
  check_tiles(boxes, scores, labels, counts, windows);
  const Tensor box_memory = plain_memory(boxes), score_memory = plain_memory(scores);
  const std::optional<Tensor> label_memory = labels ? std::optional(plain_memory(*labels)) : std::nullopt;
  const TileDetections all = {reinterpret_cast<const BoxOfTile*>(box_memory.const_data_ptr<float>()),
                              score_memory.const_data_ptr<float>(),
                              label_memory ? label_memory->const_data_ptr<int64_t>() : nullptr,
                              boxes.size(0)};
  const std::vector<int64_t> kept =
      tiles_call<merge_tiles>(all, counts.vec(), windows.vec(), width, height, iou_threshold);
  const Tensor indices = at::empty({static_cast<int64_t>(kept.size())}, at::kLong);
  std::copy(kept.begin(), kept.end(), indices.mutable_data_ptr<int64_t>());
  return indices;
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY(lensbox_runtime, m) {
  using namespace lensbox;
  m.def(
      "tile_windows(int width, int height, int canvas_width, int canvas_height, int size, float overlap, "
      "bool whole)"
      " -> int[]",
      tiles_call<tile_windows, int64_t, int64_t, int64_t, int64_t, int64_t, double, bool>);
  m.def("tile_batch(bool is_on_gpu, int canvas_width, int canvas_height) -> int",
        tiles_call<tile_batch, bool, int64_t, int64_t>);
  m.def(
      "merge_tiles(Tensor boxes, Tensor scores, Tensor? labels, int[] counts, int[] windows, int width, int "
      "height,"
      " float iou_threshold) -> Tensor",
      merge_tile_tensors);
}
