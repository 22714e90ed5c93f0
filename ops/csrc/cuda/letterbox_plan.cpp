#include "letterbox_plan.h"

#include <algorithm>
#include <cstdlib>

namespace lensbox {
namespace {

// Bytes that a stage of loading holds at most, where there is a choice.
int stage_target() {
  const char* value = std::getenv("LETTERBOX_STAGE");
  return value ? std::atoi(value) : 12288;
}
int widest_tile() {
  const char* value = std::getenv("LETTERBOX_TILE");
  return value ? std::atoi(value) : 128;
}
int min_band() {
  const char* value = std::getenv("LETTERBOX_BAND");
  return value ? std::atoi(value) : 1;
}
int fast_chunk_bytes() {
  const char* value = std::getenv("LETTERBOX_CHUNK");
  return value ? std::atoi(value) : 96;
}

// Shared memory is kept for a band of as many outputs: neighbours read what lies under their edges twice.
constexpr int16_t kLeastBand = 16;

// The layout if pixels of an axis with this stride are what is adjacent.
PixelLayout layout_along(const ImageView& image, int64_t stride) {
  if (stride == 1) return image.channels == 1 ? PixelLayout::kGray : PixelLayout::kPlanar;
  if (image.channels == 1 || image.channel_stride != 1) return PixelLayout::kStrided;
  return stride == 3 ? PixelLayout::kRgb : stride == 4 ? PixelLayout::kRgba : PixelLayout::kStrided;
}

ImageTask oriented_task(const ImageView& image, const Canvases& out) {
  const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height);
  const PassAxis columns = {image.column_stride, image.width, static_cast<int16_t>(fit.width),
                            static_cast<int16_t>(fit.left)};
  const PassAxis rows = {image.row_stride, image.height, static_cast<int16_t>(fit.height),
                         static_cast<int16_t>(fit.top)};
  ImageTask task = {};
  task.data = image.data;
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

// Quads of the second axis to load at once: enough bytes to be worth a wait.
int16_t chunk_of(const ImageTask& task) {
  const int32_t pixel = pixel_bytes(task.layout);
  if (!task.first_is_fast)
    return static_cast<int16_t>(task.layout == PixelLayout::kPlanar ? 8
                                : pixel == 1                        ? 16
                                                                    : fast_chunk_bytes() / 4 / pixel);
  const double scale = static_cast<double>(task.first.input) / task.first.output;
  const double quad_bytes =
      4 * pixel * (task.tile * scale + 16) * (task.layout == PixelLayout::kPlanar ? 3 : 1);
  return static_cast<int16_t>(std::clamp<double>(stage_target() / quad_bytes, 1, 8));
}

// The largest tile that fits, its chunk, and the highest band that fits with it.
void choose_tile(ImageTask& task, int32_t stages) {
  int32_t parts = pieces(task.first.output, widest_tile());
  for (;;) {
    task.tile = static_cast<int16_t>(pieces(task.first.output, parts));
    task.chunk = chunk_of(task);
    task.band = std::min<int16_t>(task.second.output, kLeastBand);
    if (task.tile == 1) task.band = 1;
    // Where one output of the first axis is too much, fewer of the second may be loaded at once.
    while (task.tile == 1 && task.chunk > 1 && tile_memory(task, stages).bytes > kLetterboxShared) {
      task.chunk = static_cast<int16_t>(task.chunk / 2);
    }
    const TileMemory memory = tile_memory(task, stages);
    if (memory.bytes <= kLetterboxShared) {
      const int32_t line = (memory.second_quads | 1) * kWeightBytes + static_cast<int32_t>(sizeof(QuadSpan));
      const int32_t reserved = task.band;
      const auto highest = [&](int32_t bytes) {
        return static_cast<int16_t>(
            std::min<int32_t>(task.second.output, reserved + (kLetterboxShared - memory.bytes) / bytes));
      };
      task.band = highest(line);
      if (tile_memory(task, stages).bytes > kLetterboxShared) {
        task.band = highest(line + static_cast<int32_t>(sizeof(MeasuredWindow)));
      }
      return;
    }
    if (task.tile == 1) {
      task.tile = 0;
      return;
    }
    // One output less a tile at least.
    parts = std::max(parts + 1 + parts / 4, pieces(task.first.output, task.tile - 1));
    parts = std::min<int32_t>(parts, task.first.output);
  }
}

// What an image costs, in bytes to move or as many as would take that long.
double cost_of(const ImageTask& task) {
  return static_cast<double>(task.first.input) * task.second.input * task.channels +
         8.0 * task.first.output * task.second.output * task.planes;
}

}  // namespace

int32_t plan_letterbox(const ImageView* images, int32_t count, const Canvases& out, int32_t wanted_blocks,
                       int32_t stages, ImageTask* tasks, int32_t* shared_bytes) {
  double cost = 0;
  for (int32_t i = 0; i < count; ++i) {
    tasks[i] = oriented_task(images[i], out);
    choose_tile(tasks[i], stages);
    cost += cost_of(tasks[i]);
  }
  int32_t blocks = 0;
  *shared_bytes = 0;
  for (int32_t i = 0; i < count; ++i) {
    ImageTask& task = tasks[i];
    task.first_block = blocks;
    const double share = wanted_blocks * cost_of(task) / cost;
    if (task.tile == 0) {
      const int64_t outputs = int64_t{task.first.output} * task.second.output;
      blocks += static_cast<int32_t>(std::clamp<int64_t>(outputs, 1, wanted_blocks));
      continue;
    }
    const int32_t tiles = pieces(task.first.output, task.tile);
    const int32_t most = pieces(task.second.output, std::min<int32_t>(min_band(), task.band));
    int32_t bands =
        std::clamp(static_cast<int32_t>(share / tiles), pieces(task.second.output, task.band), most);
    task.band = static_cast<int16_t>(pieces(task.second.output, bands));
    bands = pieces(task.second.output, task.band);
    blocks += tiles * bands;
    *shared_bytes = std::max(*shared_bytes, tile_memory(task, stages).bytes);
  }
  return blocks;
}

}  // namespace lensbox
