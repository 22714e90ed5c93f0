// Tiles of large photographs: docs/tiles.md has the rule, which ops/csrc/tiles.h computes.

#include "tiles.h"  // of the op library

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "detect/steps.h"

namespace lensbox {
namespace {

// Call a function of the op library, whose exceptions are of the caller's input.
template <class Function>
auto of_input(Function function) {
  try {
    return function();
  } catch (const std::invalid_argument& error) {
    throw InputError(error.what());
  }
}

// Return the detections of a photograph from the detections in its windows, best first.
std::vector<Detection> merged(std::vector<std::vector<Detection>> found, const std::vector<int64_t>& windows,
                              const DecodedPhoto& photo, double iou_threshold) {
  std::vector<Detection> all;
  std::vector<int64_t> counts, labels;
  std::vector<BoxOfTile> boxes;
  std::vector<float> scores;
  for (std::vector<Detection>& of_window : found) {
    counts.push_back(std::ssize(of_window));
    std::ranges::move(of_window, std::back_inserter(all));
  }
  for (const Detection& detection : all) {
    boxes.push_back(detection.box);
    scores.push_back(detection.score);
    labels.push_back(detection.label);
  }
  std::vector<Detection> best;
  for (const int64_t index : merge_tiles({boxes.data(), scores.data(), labels.data(), std::ssize(all)},
                                         counts, windows, photo.width, photo.height, iou_threshold)) {
    best.push_back(std::move(all[index]));
  }
  return best;
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

std::vector<Detection> detect_in_tiles(const Detector::Parts& parts, const DecodedPhoto& photo,
                                       const std::function<Source(const int64_t*)>& cut,
                                       const TileSpec& tiles, const Thresholds& thresholds) {
  check_tiles(tiles);
  const Canvas& canvas = parts.metadata.reading.canvas;
  const std::vector<int64_t> windows = of_input([&] {
    return tile_windows(photo.width, photo.height, canvas.width, canvas.height, tiles.size.value_or(0),
                        tiles.overlap, tiles.whole);
  });
  const auto together =
      static_cast<size_t>(4 * tile_batch(!parts.backend->is_on_cpu(), canvas.width, canvas.height));
  std::vector<std::vector<Detection>> found;
  for (size_t first = 0; first < windows.size(); first += together) {
    std::vector<Source> views;
    for (size_t i = first; i < std::min(first + together, windows.size()); i += 4) {
      Source& view = views.emplace_back(cut(&windows[i]));
      view.photo.width = photo.width;
      view.photo.height = photo.height;
      std::transform(&windows[i], &windows[i] + 4, view.photo.window.begin(),
                     [](int64_t edge) { return static_cast<float>(edge); });
    }
    std::ranges::move(detect_sources(parts, views, thresholds), std::back_inserter(found));
  }
  return merged(std::move(found), windows, photo, checked(thresholds, parts.metadata).second);
}

std::vector<Detection> detect_in_tiles(const Detector::Parts& parts, const DecodedPhoto& photo,
                                       const TileSpec& tiles, const Thresholds& thresholds) {
  const auto cut = [&](const int64_t* window) {
    Source view;
    Pixels& pixels = view.photo.pixels = photo.pixels;  // without a copy
    pixels.data = photo.pixels.row(window[1]) + window[0] * pixels.channels;
    pixels.width = window[2] - window[0];
    pixels.height = window[3] - window[1];
    return view;
  };
  return detect_in_tiles(parts, photo, cut, tiles, thresholds);
}

}  // namespace lensbox
