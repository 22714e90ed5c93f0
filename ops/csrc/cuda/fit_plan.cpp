#include "fit_plan.h"

#include <algorithm>
#include <cmath>

namespace lensbox {
namespace {

// Limits of a tile's outputs along the first axis: at most the threads of a block, and at least half a warp
// unless shared memory is too small.
constexpr int32_t kWidestTile = kFitThreads;
constexpr int32_t kNarrowestTile = 16;

// The preferred number of bytes to load at once: enough to hide the latency of a load.
constexpr double kChunkBytes = 12288;

// The smallest band, in outputs, that shared memory is reserved for: neighbouring bands both read the pixels
// under their common edge.
constexpr int16_t kLeastBand = 24;

// Return the layout for a fast axis with this stride between pixels.
PixelLayout layout_along(const ImageView& image, int64_t stride) {
  if (stride == 1) return image.channels == 1 ? PixelLayout::kGray : PixelLayout::kPlanar;
  if (image.channels == 1 || image.channel_stride != 1) return PixelLayout::kStrided;
  return stride == 3 ? PixelLayout::kRgb : stride == 4 ? PixelLayout::kRgba : PixelLayout::kStrided;
}

ImageTask oriented_task(const ImageView& image, const Canvases& out) {
  const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height, out.mode);
  const PassAxis columns = pass_axis(image.column_stride, image.width, fit.width, out.width);
  const PassAxis rows = pass_axis(image.row_stride, image.height, fit.height, out.height);
  ImageTask task = {};
  task.data = image.data;
  task.filter = out.filter;
  task.channel_stride = image.channel_stride;
  task.channels = static_cast<uint8_t>(image.channels);
  task.planes = out.channels == 3 && image.channels > 1 ? 3 : 1;
  task.first_is_columns = !rows_first(image.width, image.height, fit);
  task.first = task.first_is_columns ? columns : rows;
  task.second = task.first_is_columns ? rows : columns;
  const PixelLayout along_first = layout_along(image, task.first.stride);
  const PixelLayout along_second = layout_along(image, task.second.stride);
  if (along_first != PixelLayout::kStrided && along_second != PixelLayout::kStrided) {
    task.first_is_fast = task.first.input >= task.second.input;
  } else if (along_first == along_second) {
    task.first_is_fast = task.first.stride <= task.second.stride;
  } else {
    task.first_is_fast = along_first != PixelLayout::kStrided;
  }
  task.layout = task.first_is_fast ? along_first : along_second;
  return task;
}

// Return the quads of the second axis to load at once. Along the fast axis, a load covers a segment of memory
// of some length.
int16_t chunk_of(const ImageTask& task) {
  const int32_t pixel = pixel_bytes(task.layout);
  if (!task.first_is_fast) {
    return static_cast<int16_t>(task.layout == PixelLayout::kPlanar ? 8 : pixel == 1 ? 16 : 24 / pixel);
  }
  const double scale = static_cast<double>(task.first.input) / task.first.whole;
  const double quad_bytes =
      4 * pixel * (task.tile * scale + 16) * (task.layout == PixelLayout::kPlanar ? 3 : 1);
  return static_cast<int16_t>(std::clamp<double>(kChunkBytes / quad_bytes, 1, 8));
}

// Return whether the task's tile and band fit into shared memory with its chunk, or with a smaller chunk. If
// the tile could shrink instead, accept a chunk of half the lines, but not of shorter pieces of lines.
bool fits(ImageTask& task) {
  const int32_t least = task.tile == 1 ? 1 : task.first_is_fast ? (task.chunk + 1) / 2 : task.chunk;
  while (tile_memory(task).bytes > kFitShared) {
    if (task.chunk == least) return false;
    --task.chunk;
  }
  return true;
}

// Choose the largest tile that fits if the first axis is cut into at least `parts`, the tile's chunk, and the
// highest band that fits with the tile.
void choose_tile(ImageTask& task, int32_t parts) {
  for (;;) {
    task.tile = static_cast<int16_t>(pieces(task.first.output, parts));
    task.chunk = chunk_of(task);
    task.band = task.tile == 1 ? 1 : std::min(task.second.output, kLeastBand);
    if (fits(task)) break;
    if (task.tile == 1) {
      task.tile = 0;
      return;
    }
    // Make the tile smaller by at least one output.
    parts = std::max(parts + 1 + parts / 8, pieces(task.first.output, task.tile - 1));
    parts = std::min<int32_t>(parts, task.first.output);
  }
  const int32_t left = kFitShared - tile_memory(task).bytes;
  const int32_t line =
      ((window_quads(task.filter, task.second) | 1) * kWeightBytes) + static_cast<int32_t>(sizeof(QuadSpan));
  const int16_t reserved = task.band;
  for (const int32_t bytes : {line, line + static_cast<int32_t>(sizeof(MeasuredWindow))}) {
    task.band = static_cast<int16_t>(std::min<int32_t>(task.second.output, reserved + left / bytes));
    if (tile_memory(task).bytes <= kFitShared) return;
  }
}

// Return the cost of an image in bytes: the bytes to move, plus the other work as bytes that take as long.
double cost_of(const ImageTask& task) {
  const double first = static_cast<double>(task.first.input) * task.first.output / task.first.whole;
  const double second = static_cast<double>(task.second.input) * task.second.output / task.second.whole;
  return first * second * task.channels + 8.0 * task.first.output * task.second.output * task.planes;
}

// Estimate the time of an image that has `share` of the blocks that run at the same time. The estimate counts
// the outputs of a block and a few more along each axis, for the weights and for edges that neighbours
// compute too. Further blocks run in waves, and an almost empty last wave takes as long as a full wave.
double time_of(const ImageTask& task, double share) {
  constexpr double kEdge = 2.0;
  const double blocks =
      static_cast<double>(pieces(task.first.output, task.tile)) * pieces(task.second.output, task.band);
  return std::max(1.0, std::ceil(blocks / share)) * (task.tile + kEdge) * (task.band + kEdge);
}

// Cut the second axis into bands, no higher than the task's band. Return the estimated time.
double choose_band(ImageTask& task, double share) {
  const int32_t tiles = pieces(task.first.output, task.tile);
  const int32_t fewest = pieces(task.second.output, task.band);
  double best_time = 0;
  ImageTask tried = task;
  for (int32_t waves = 1; waves <= 4; ++waves) {
    const int32_t bands = std::clamp(static_cast<int32_t>(std::min(share * waves / tiles, 16384.0)), fewest,
                                     int32_t{task.second.output});
    tried.band = static_cast<int16_t>(pieces(task.second.output, bands));
    const double time = time_of(tried, share);
    if (waves == 1 || time < best_time) {
      task.band = tried.band;
      best_time = time;
    }
  }
  return best_time;
}

// Load a band in as few chunks as shared memory allows, all of about the same size.
void enlarge_chunks(ImageTask& task) {
  const double scale = static_cast<double>(task.second.input) / task.second.whole;
  const int32_t quads =
      static_cast<int32_t>(scale * (task.band - 1)) / 4 + window_quads(task.filter, task.second);
  ImageTask larger = task;
  while (larger.chunk < quads && (++larger.chunk, tile_memory(larger).bytes <= kFitShared)) {
    task.chunk = larger.chunk;
  }
  task.chunk = static_cast<int16_t>(pieces(quads, pieces(quads, task.chunk)));
}

// Wide tiles have fewer edges, but an image alone is cut small, so that all multiprocessors work on it.
void cut_image(ImageTask& task, double share) {
  const ImageTask whole = task;
  double best_time = 0;
  for (int32_t parts = pieces(whole.first.output, kWidestTile);;) {
    ImageTask tried = whole;
    choose_tile(tried, parts);
    if (tried.tile == 0) break;
    const double time = choose_band(tried, share);
    if (best_time == 0 || time < 0.85 * best_time) {
      task = tried;
      best_time = time;
    }
    if (tried.tile <= kNarrowestTile) break;
    parts = 2 * pieces(whole.first.output, tried.tile);
  }
  if (task.tile > 0) enlarge_chunks(task);
}

bool same_shape(const ImageView& a, const ImageView& b) {
  return a.channels == b.channels && a.height == b.height && a.width == b.width &&
         a.channel_stride == b.channel_stride && a.row_stride == b.row_stride &&
         a.column_stride == b.column_stride;
}

}  // namespace

int32_t plan_fit(const ImageView* images, int32_t count, const Canvases& out, int32_t at_once,
                 ImageTask* tasks, int32_t* shared_bytes) {
  double cost = 0;
  for (int32_t i = 0; i < count; ++i) {
    if (i > 0 && same_shape(images[i], images[i - 1])) {
      tasks[i] = tasks[i - 1];
      tasks[i].data = images[i].data;
    } else {
      tasks[i] = oriented_task(images[i], out);
    }
    cost += cost_of(tasks[i]);
  }
  int32_t blocks = 0, image_blocks = 0;
  *shared_bytes = sizeof(WideMemory);
  for (int32_t i = 0; i < count; ++i) {
    ImageTask& task = tasks[i];
    if (i > 0 && same_shape(images[i], images[i - 1])) {
      const uint8_t* const data = task.data;
      task = tasks[i - 1];
      task.data = data;
    } else if (reads_few(out.filter)) {
      image_blocks = pieces(out.height, kRowsOfBlock);
    } else {
      const double share = at_once * cost_of(task) / cost;
      cut_image(task, share);
      if (task.tile > 0) {
        image_blocks = pieces(task.first.output, task.tile) * pieces(task.second.output, task.band);
        *shared_bytes = std::max(*shared_bytes, tile_memory(task).bytes);
      } else {
        image_blocks = std::min(int32_t{task.first.output} * task.second.output, at_once);
      }
    }
    task.first_block = blocks;
    blocks += image_blocks;
  }
  return blocks;
}

}  // namespace lensbox
