#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "detect/steps.h"

namespace lensbox {
namespace {

constexpr size_t kMaxTiles = 4096;
// Larger than any photograph; the product with a side of the canvas fits into 64 bits.
constexpr int64_t kLargestSize = int64_t{1} << 31;
constexpr double kCutMargin = 1.0 / 64;  // of a tile's side
constexpr float kCovered = 0.5F;
constexpr float kScore = 0.5F;

struct Span {
  int64_t first;
  int64_t end;
};

// Spread tiles evenly along an axis, with at least this overlap.
std::vector<Span> spans(int64_t length, int64_t side, double overlap) {
  if (length <= side) return {{0, length}};
  const auto step = std::max<int64_t>(1, std::llround(std::floor(static_cast<double>(side) * (1 - overlap))));
  const int64_t gaps = (length - side + step - 1) / step;
  std::vector<Span> spans;
  for (int64_t i = 0; i <= gaps && spans.size() <= kMaxTiles; ++i) {
    const int64_t first = (length - side) * i / gaps;
    spans.push_back({first, first + side});
  }
  return spans;
}

// Return a side of a tile for a side of the canvas.
int64_t tile_side(int64_t size, int64_t side, int64_t longer) {
  const double exact = static_cast<double>(size * side) / static_cast<double>(longer);
  return std::max<int64_t>(1, std::llround(std::nearbyint(exact)));
}

void require_whole(const Photo& photo) {
  const std::array<float, 4> whole{0, 0, static_cast<float>(photo.width), static_cast<float>(photo.height)};
  if (photo.pixels.dim() != 3 || photo.pixels.size(1) != photo.height ||
      photo.pixels.size(2) != photo.width || photo.window != whole) {
    throw InputError(
        "photo must be a whole photograph at full size for tiles: read it with jpeg_oversampling 0");
  }
}

bool is_cut(const Box& box, const Photo& view) {
  const auto [x1, y1, x2, y2] = view.window;
  const double across = (static_cast<double>(x2) - x1) * kCutMargin;
  const double down = (static_cast<double>(y2) - y1) * kCutMargin;
  return (x1 > 0 && box[0] < static_cast<float>(x1 + across)) ||
         (y1 > 0 && box[1] < static_cast<float>(y1 + down)) ||
         (x2 < static_cast<float>(view.width) && box[2] > static_cast<float>(x2 - across)) ||
         (y2 < static_cast<float>(view.height) && box[3] > static_cast<float>(y2 - down));
}

float pixels_of(const Box& box) {
  return (box[2] - box[0]) * (box[3] - box[1]);
}

// Return whether `other` is larger, has at least half of the score and covers more than half of the cut box.
bool covers(const Detection& other, const Detection& cut) {
  const float width = std::min(cut.box[2], other.box[2]) - std::max(cut.box[0], other.box[0]);
  const float height = std::min(cut.box[3], other.box[3]) - std::max(cut.box[1], other.box[1]);
  if (!(width > 0 && height > 0) || other.label != cut.label) return false;
  return width * height > kCovered * pixels_of(cut.box) && pixels_of(other.box) > pixels_of(cut.box) &&
         other.score >= kScore * cut.score;
}

// Return the smallest box that holds the boxes of all detections.
Box bounds(const std::vector<Detection>& detections) {
  constexpr float kFar = std::numeric_limits<float>::infinity();
  Box all{kFar, kFar, -kFar, -kFar};
  for (const Detection& detection : detections) {
    const Box& box = detection.box;
    all = {std::min(all[0], box[0]), std::min(all[1], box[1]), std::max(all[2], box[2]),
           std::max(all[3], box[3])};
  }
  return all;
}

std::vector<const Detection*> reaching_into(const Box& area,
                                            const std::vector<const Detection*>& detections) {
  std::vector<const Detection*> reaching;
  std::ranges::copy_if(detections, std::back_inserter(reaching), [&](const Detection* detection) {
    const Box& box = detection->box;
    return box[0] < area[2] && box[1] < area[3] && box[2] > area[0] && box[3] > area[1];
  });
  return reaching;
}

// Call lensbox::padded_nms for all of these detections; return the indices of those to keep, best first.
std::vector<int64_t> nms(const std::vector<Detection>& detections, double iou_threshold) {
  using Nms = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, double, double, c10::SymInt, c10::SymInt,
      const std::optional<at::Tensor>&);
  const auto count = static_cast<int64_t>(detections.size());
  const at::Tensor boxes = at::empty({1, count, 4}, at::kFloat);
  const at::Tensor scores = at::empty({1, count}, at::kFloat);
  const at::Tensor labels = at::empty({1, count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    std::ranges::copy(detections[i].box, boxes.mutable_data_ptr<float>() + 4 * i);
    scores.mutable_data_ptr<float>()[i] = detections[i].score;
    labels.mutable_data_ptr<int64_t>()[i] = detections[i].label;
  }
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lensbox::padded_nms", "").typed<Nms>();
  const auto kept =
      op.call(boxes, scores, iou_threshold, -std::numeric_limits<double>::infinity(), count, count, labels);
  const int64_t* const indices = std::get<2>(kept).const_data_ptr<int64_t>();
  return {indices, std::find(indices, indices + count, -1)};
}

}  // namespace

void check_tiles(const TileSpec& spec) {
  if (spec.size && *spec.size < 1) {
    throw InputError("tiles must have a size of at least 1 pixel, got " + std::to_string(*spec.size));
  }
  if (!(spec.overlap >= 0 && spec.overlap < 1)) {
    throw InputError("tiles must have an overlap of at least 0 and less than 1, got " +
                     std::to_string(spec.overlap));
  }
}

std::vector<Photo> cut_into_tiles(const Photo& photo, const Canvas& canvas, const TileSpec& spec) {
  require_whole(photo);
  const int64_t longer = std::max(canvas.width, canvas.height);
  const int64_t size = std::min(spec.size.value_or(longer), kLargestSize);
  const auto columns = spans(photo.width, tile_side(size, canvas.width, longer), spec.overlap);
  const auto rows = spans(photo.height, tile_side(size, canvas.height, longer), spec.overlap);
  if (rows.size() * columns.size() > kMaxTiles) {
    throw InputError("tiles must be at most " + std::to_string(kMaxTiles) + ", got more of size " +
                     std::to_string(size) + " for " + std::to_string(photo.width) + " x " +
                     std::to_string(photo.height) + " pixels");
  }
  if (rows.size() == 1 && columns.size() == 1) return {photo};
  std::vector<Photo> views;
  if (spec.whole) views.push_back(photo);
  for (const Span& row : rows) {
    for (const Span& column : columns) {
      Photo tile = photo;
      tile.pixels = photo.pixels.slice(1, row.first, row.end).slice(2, column.first, column.end);
      tile.window = {static_cast<float>(column.first), static_cast<float>(row.first),
                     static_cast<float>(column.end), static_cast<float>(row.end)};
      views.push_back(std::move(tile));
    }
  }
  return views;
}

std::vector<Detection> merge_tiles(std::vector<std::vector<Detection>> found, const std::vector<Photo>& views,
                                   double iou_threshold) {
  if (found.size() == 1) return std::move(found.front());
  std::vector<const Detection*> all;
  for (const std::vector<Detection>& detections : found) {
    for (const Detection& detection : detections)
      all.push_back(&detection);
  }
  std::vector<Detection> kept;
  for (size_t view = 0; view < found.size(); ++view) {
    // A box of this view can only be covered by boxes that reach into the area of all its boxes.
    const std::vector<const Detection*> near = reaching_into(bounds(found[view]), all);
    for (const Detection& one : found[view]) {
      const auto covers_one = [&](const Detection* other) { return covers(*other, one); };
      if (!is_cut(one.box, views[view]) || std::ranges::none_of(near, covers_one)) kept.push_back(one);
    }
  }
  if (kept.empty()) return {};
  std::vector<Detection> merged;
  for (const int64_t index : nms(kept, iou_threshold)) {
    merged.push_back(std::move(kept[index]));
  }
  return merged;
}

}  // namespace lensbox
