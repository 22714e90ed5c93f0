// Tiles of large photographs: docs/tiles.md has the rule. The ops of `lensbox_runtime` and the C++ runtime
// share this code. The functions run on the CPU, on numbers of one photograph, and throw
// std::invalid_argument.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "cpu/launchers.h"
#include "fit.h"

namespace lensbox {

template <typename... Parts>
void check_tiles_value(bool holds, const Parts&... parts) {
  if (holds) return;
  std::ostringstream message;
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

constexpr int64_t kMaxTiles = 4096;
constexpr double kCutMargin = 1.0 / 64;  // of a tile's side
constexpr float kCovered = 0.5F;
constexpr float kLeastScore =
    0.5F;  // a weak box of the whole photograph must not replace a part with a high score

// Canvases of one photograph's tiles that are computed together. On CPUs larger batches miss the caches. On
// GPUs the batch is bounded by its pixels: 128 canvases of 256 x 256, 20 of 640 x 640. A call of a compiled
// package takes 1 ms on the CPU, longer than a GPU needs for 64 canvases.
constexpr int64_t kTilesOnCpu = 8, kTilePixelsOnGpu = int64_t{1} << 23;

struct TileSpan {
  int64_t first, end;
};

// Spread tiles evenly along an axis, with at least this overlap. Return one more than kMaxTiles if there are
// more.
inline std::vector<TileSpan> tile_spans(int64_t length, int64_t side, double overlap) {
  if (length <= side) return {{0, length}};
  const auto step = std::max<int64_t>(1, std::llround(std::floor(static_cast<double>(side) * (1 - overlap))));
  const int64_t gaps = (length - side + step - 1) / step;
  std::vector<TileSpan> spans;
  for (int64_t i = 0; i <= std::min(gaps, kMaxTiles); ++i) {
    const int64_t first = (length - side) * i / gaps;
    spans.push_back({first, first + side});
  }
  return spans;
}

inline void check_tile_sides(const char* name, int64_t width, int64_t height, int64_t longest) {
  check_tiles_value(width >= 1 && width <= longest && height >= 1 && height <= longest, name,
                    " must have sides from 1 to ", longest, " pixels, got ", width, " x ", height);
}

inline int64_t tile_side(int64_t size, int64_t side, int64_t longer) {
  const double exact = static_cast<double>(size * side) / static_cast<double>(longer);
  return std::max<int64_t>(1, std::llround(std::nearbyint(exact)));
}

// Return the windows x1, y1, x2, y2 of a photograph, one after another: first the whole one, if requested,
// then the tiles row by row. A photograph that fits into one tile is one window. size: of a tile's longer
// side; 0: the canvas's. overlap: of neighbours, as a fraction of a tile's side.
inline std::vector<int64_t> tile_windows(int64_t width, int64_t height, int64_t canvas_width,
                                         int64_t canvas_height, int64_t size, double overlap, bool whole) {
  check_tile_sides("a photograph", width, height, kLongestSide);
  check_tile_sides("a canvas", canvas_width, canvas_height, kLongestCanvas);
  check_tiles_value(size >= 0,
                    "tiles must have a size of at least 1 pixel, or 0 for that of the canvas, got ", size);
  check_tiles_value(overlap >= 0 && overlap < 1,
                    "tiles must have an overlap of at least 0 and less than 1, got ", overlap);
  const int64_t longer = std::max(canvas_width, canvas_height);
  size = std::min(size == 0 ? longer : size, kLongestSide);
  const auto columns = tile_spans(width, tile_side(size, canvas_width, longer), overlap);
  const auto rows = tile_spans(height, tile_side(size, canvas_height, longer), overlap);
  check_tiles_value(static_cast<int64_t>(rows.size() * columns.size()) <= kMaxTiles, "tiles must be at most ",
                    kMaxTiles, ", got more of size ", size, " for ", width, " x ", height, " pixels");
  std::vector<int64_t> windows;
  const bool is_one = rows.size() == 1 && columns.size() == 1;
  if (whole || is_one) windows = {0, 0, width, height};
  if (is_one) return windows;
  for (const TileSpan& row : rows) {
    for (const TileSpan& column : columns)
      windows.insert(windows.end(), {column.first, row.first, column.end, row.end});
  }
  return windows;
}

// Return how many tiles of one photograph are computed together.
inline int64_t tile_batch(bool is_on_gpu, int64_t canvas_width, int64_t canvas_height) {
  check_tile_sides("a canvas", canvas_width, canvas_height, kLongestCanvas);
  if (!is_on_gpu) return kTilesOnCpu;
  return std::max<int64_t>(1, kTilePixelsOnGpu / (canvas_width * canvas_height));
}

using BoxOfTile = std::array<float, 4>;

inline float pixels_of(const BoxOfTile& box) {
  return (box[2] - box[0]) * (box[3] - box[1]);
}

// The part of a photograph in which boxes are whole: from the margins of a tile's inner edges on.
inline BoxOfTile whole_part(const int64_t* window, int64_t width, int64_t height) {
  constexpr float kFar = std::numeric_limits<float>::infinity();
  const int64_t size[2] = {width, height};
  BoxOfTile part{};
  for (int axis = 0; axis < 2; ++axis) {
    const auto first = static_cast<double>(window[axis]), end = static_cast<double>(window[axis + 2]);
    const double margin = (end - first) * kCutMargin;
    part[axis] = first > 0 ? static_cast<float>(first + margin) : -kFar;
    part[axis + 2] = window[axis + 2] < size[axis] ? static_cast<float>(end - margin) : kFar;
  }
  return part;
}

// The detections in all windows, in the order of the windows.
struct TileDetections {
  const BoxOfTile* boxes;
  const float* scores;
  const int64_t* labels;  // nullptr without classes
  int64_t count;

  // Whether a box is larger, has at least half of the score, and covers more than half of the cut box.
  bool covers(int64_t other, int64_t cut) const {
    const BoxOfTile &a = boxes[cut], &b = boxes[other];
    const float width = std::min(a[2], b[2]) - std::max(a[0], b[0]);
    const float height = std::min(a[3], b[3]) - std::max(a[1], b[1]);
    if (!(width > 0 && height > 0) || (labels != nullptr && labels[other] != labels[cut])) return false;
    return width * height > kCovered * pixels_of(a) && pixels_of(b) > pixels_of(a) &&
           scores[other] >= kLeastScore * scores[cut];
  }

  // Append the detections of a window, `first` to `end`, that are not cut, or not covered by another one.
  void append_kept(int64_t first, int64_t end, const BoxOfTile& part, std::vector<int64_t>& kept) const {
    const auto is_cut = [&](const BoxOfTile& box) {
      return box[0] < part[0] || box[1] < part[1] || box[2] > part[2] || box[3] > part[3];
    };
    // Only boxes near the cut ones can cover them.
    constexpr float kFar = std::numeric_limits<float>::infinity();
    BoxOfTile area{kFar, kFar, -kFar, -kFar};
    for (int64_t i = first; i < end; ++i) {
      const BoxOfTile& box = boxes[i];
      if (is_cut(box))
        area = {std::min(area[0], box[0]), std::min(area[1], box[1]), std::max(area[2], box[2]),
                std::max(area[3], box[3])};
    }
    std::vector<int64_t> near;
    for (int64_t i = 0; i < count && area[0] <= area[2]; ++i) {
      const BoxOfTile& box = boxes[i];
      if (box[0] < area[2] && box[1] < area[3] && box[2] > area[0] && box[3] > area[1]) near.push_back(i);
    }
    for (int64_t i = first; i < end; ++i) {
      const auto covers_it = [&](int64_t other) { return covers(other, i); };
      if (!is_cut(boxes[i]) || std::none_of(near.begin(), near.end(), covers_it)) kept.push_back(i);
    }
  }
};

// Return the indices among `candidates` that greedy suppression keeps, best first. The kernel is called
// directly: the op has a limit of candidates, but thousands of tiles may find more.
inline std::vector<int64_t> suppressed(const TileDetections& all, const std::vector<int64_t>& candidates,
                                       double iou_threshold) {
  std::vector<BoxOfTile> boxes;
  std::vector<float> scores;
  std::vector<int64_t> labels;
  for (const int64_t i : candidates) {
    boxes.push_back(all.boxes[i]);
    scores.push_back(all.scores[i]);
    if (all.labels != nullptr) labels.push_back(all.labels[i]);
  }
  const auto count = static_cast<int64_t>(candidates.size());
  std::vector<BoxOfTile> kept_boxes(candidates.size());
  std::vector<float> kept_scores(candidates.size());
  std::vector<int64_t> indices(candidates.size());
  int32_t kept = 0;
  const NmsProblem problem = {packed_slots(boxes.data(), DType::kFloat32, count, 4),
                              packed_slots(scores.data(), DType::kFloat32, count, 1),
                              packed_slots(labels.data(), DType::kInt64, count, 1),
                              /*has_categories=*/all.labels != nullptr,
                              /*batch=*/1,
                              /*per_image=*/count,
                              iou_threshold,
                              /*score_threshold=*/-std::numeric_limits<double>::infinity(),
                              /*max_candidates=*/count,
                              /*max_detections=*/count,
                              packed_slots(kept_boxes.data(), DType::kFloat32, count, 4),
                              packed_slots(kept_scores.data(), DType::kFloat32, count, 1),
                              indices.data(),
                              &kept};
  lensbox_cpu_padded_nms(problem);
  indices.resize(static_cast<size_t>(kept));
  for (int64_t& index : indices) {
    index = candidates[index];
  }
  return indices;
}

// Return the indices of the detections of a photograph, best first. all: in pixels of the photograph, found
// in all windows, the first counts[0] of them in the first window, and so on. windows: as tile_windows
// returns.
inline std::vector<int64_t> merge_tiles(const TileDetections& all, const std::vector<int64_t>& counts,
                                        const std::vector<int64_t>& windows, int64_t width, int64_t height,
                                        double iou_threshold) {
  check_tiles_value(iou_threshold >= 0 && iou_threshold <= 1, "iou_threshold must be between 0 and 1, got ",
                    iou_threshold);
  std::vector<int64_t> kept;
  int64_t first = 0;
  for (size_t i = 0; i < counts.size(); first += counts[i++])
    all.append_kept(first, first + counts[i], whole_part(&windows[4 * i], width, height), kept);
  if (counts.size() <= 1 || kept.empty()) return kept;
  return suppressed(all, kept, iou_threshold);
}

}  // namespace lensbox
