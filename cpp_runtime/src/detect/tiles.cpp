// Tiles of large photographs: docs/tiles.md has the rule, which the op library computes.

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "detect/steps.h"
#include "model/op_library.h"

namespace lensbox {
namespace {

void require_whole(const Photo& photo) {
  const std::array<float, 4> whole{0, 0, static_cast<float>(photo.width), static_cast<float>(photo.height)};
  if (photo.pixels.dim() != 3 || photo.pixels.size(1) != photo.height ||
      photo.pixels.size(2) != photo.width || photo.window != whole) {
    throw InputError(
        "photo must be a whole photograph at full size for tiles: read it with jpeg_oversampling 0");
  }
}

// Return the views of a photograph: the whole photograph first, if requested, then the tiles row by row,
// without copies. A photograph that fits into one tile is one view.
std::vector<Photo> cut_into_tiles(const Photo& photo, const Canvas& canvas, const TileSpec& spec) {
  require_whole(photo);
  std::vector<int64_t> edges;
  try {
    edges = call_op("lensbox_runtime::tile_windows", photo.width, photo.height, canvas.width, canvas.height,
                    spec.size.value_or(0), spec.overlap, spec.whole)
                .toIntVector();
  } catch (const c10::ValueError& error) {
    throw InputError(error.what_without_backtrace());
  }
  std::vector<Photo> views;
  for (size_t i = 0; i < edges.size(); i += 4) {
    Photo tile = photo;
    tile.pixels = photo.pixels.slice(1, edges[i + 1], edges[i + 3]).slice(2, edges[i], edges[i + 2]);
    std::transform(&edges[i], &edges[i] + 4, tile.window.begin(),
                   [](int64_t edge) { return static_cast<float>(edge); });
    views.push_back(std::move(tile));
  }
  return views;
}

// Return the detections of a photograph from the detections in its views, best first.
std::vector<Detection> merge_tiles(std::vector<std::vector<Detection>> found, const std::vector<Photo>& views,
                                   double iou_threshold) {
  std::vector<Detection> all;
  std::vector<int64_t> counts, edges, labels;
  std::vector<float> boxes, scores;
  for (size_t i = 0; i < found.size(); ++i) {
    counts.push_back(static_cast<int64_t>(found[i].size()));
    std::ranges::transform(views[i].window, std::back_inserter(edges),
                           [](float edge) { return static_cast<int64_t>(edge); });
    std::ranges::move(found[i], std::back_inserter(all));
  }
  for (const Detection& detection : all) {
    boxes.insert(boxes.end(), detection.box.begin(), detection.box.end());
    scores.push_back(detection.score);
    labels.push_back(detection.label);
  }
  const at::Tensor kept =
      call_op("lensbox_runtime::merge_tiles", at::tensor(boxes).view({std::ssize(all), 4}),
              at::tensor(scores), std::optional(at::tensor(labels)), counts, edges, views.front().width,
              views.front().height, iou_threshold)
          .toTensor();
  std::vector<Detection> merged;
  for (int64_t i = 0; i < kept.size(0); ++i) {
    merged.push_back(std::move(all[kept.const_data_ptr<int64_t>()[i]]));
  }
  return merged;
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

std::vector<Detection> detect_tiles(const Detector& detector, const Photo& photo, const TileSpec& tiles,
                                    const Thresholds& thresholds) {
  check_tiles(tiles);
  const Metadata& metadata = detector.metadata();
  const std::vector<Photo> views = cut_into_tiles(photo, metadata.reading.canvas, tiles);
  const Canvas& canvas = metadata.reading.canvas;
  const bool is_on_gpu = device_of(detector).is_cuda();
  const auto together = static_cast<size_t>(
      call_op("lensbox_runtime::tile_batch", is_on_gpu, canvas.width, canvas.height).toInt());
  std::vector<std::vector<Detection>> found;
  for (size_t first = 0; first < views.size(); first += together) {
    const auto begin = views.begin() + static_cast<int64_t>(first);
    const auto end = begin + static_cast<int64_t>(std::min(together, views.size() - first));
    std::ranges::move(detect_photos(detector, {begin, end}, thresholds), std::back_inserter(found));
  }
  return merge_tiles(std::move(found), views, checked(thresholds, metadata).second);
}

}  // namespace lensbox
