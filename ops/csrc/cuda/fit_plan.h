// The plan of `fit`: which block of threads computes which part of an image. The host makes the plan
// and needs no CUDA.
//
// The first axis is the axis that the first pass reduces; the second axis is the other one. rows_first()
// decides which axis is the columns. One block computes one tile: `tile` outputs along the first axis by
// `band` outputs along the second.
#pragma once

#include <cstdint>

#include "../fit_math.h"

namespace lensbox {

constexpr int kFitThreads = 128;

// The shared memory of a tile. kFitBlocksPerSm blocks with this much each, and 1 KiB each of CUDA's
// own, fill a multiprocessor of compute capability 9.0.
constexpr int kFitBlocksPerSm = 5;
constexpr int kFitShared = 45664;

// Chunks of a tile in shared memory, as loaded: one is unpacked while the next one is being loaded.
constexpr int kFitStages = 2;

// The layout of a pixel's bytes along the fast axis, whose pixels are adjacent in memory.
enum class PixelLayout : uint8_t {
  kGray,     // 1 byte a pixel
  kPlanar,   // 1 byte a pixel, each channel elsewhere
  kRgb,      // 3 bytes a pixel
  kRgba,     // 4 bytes a pixel, the last byte unused
  kStrided,  // anything else
};

struct PassAxis {
  int64_t stride;          // bytes between pixels of the image
  int32_t input;           // pixels of the image
  int32_t whole, begin;    // outputs of the scaled image, and the first one that the canvas shows
  int16_t output, offset;  // pixels of the canvas that it fills, and where they begin
};

// What the host knows of an image and decides about it.
struct TaskFacts {
  const uint8_t* data;
  int64_t channel_stride;
  int32_t first_block;
  int16_t tile, band;  // tile is 0 where not even one output's window fits shared memory
  int16_t chunk;       // quads of the second axis that are loaded at once
  PixelLayout layout;
  uint8_t channels;       // of the image
  uint8_t planes;         // that are computed apart: 1 or 3
  bool first_is_fast;     // else the second axis is
  bool first_is_columns;  // else the second axis is
};

struct ImageTask : TaskFacts {
  PassAxis first, second;
  Filter filter;
};

// An axis without what its canvas tells too. Of a crop the shown part is computed from `whole`; else `output`
// is all of it. (Loaded numbers take fewer registers than computed ones: they can be loaded again.)
struct PackedAxis {
  int64_t stride;
  int32_t input;
  union {
    int32_t whole;
    struct {
      int16_t output, offset;
    } all;
  };
};

// A task as a kernel takes it.
struct PackedTask : TaskFacts {
  PackedAxis first, second;
};

// Return the axis of an image whose `input` pixels become `whole`, for a canvas of `side` pixels.
LENSBOX_HOST_DEVICE PassAxis pass_axis(int64_t stride, int32_t input, int64_t whole, int32_t side) {
  const VisibleRange shown = visible_range(whole, int64_t{side});
  return {stride,
          input,
          static_cast<int32_t>(whole),
          static_cast<int32_t>(shown.begin),
          static_cast<int16_t>(shown.count),
          static_cast<int16_t>(shown.offset)};
}

LENSBOX_HOST_DEVICE PassAxis unpacked(const PackedAxis& axis, int32_t side, FitMode mode) {
  if (mode == FitMode::kCrop) return pass_axis(axis.stride, axis.input, int64_t{axis.whole}, side);
  return {axis.stride, axis.input, axis.all.output, 0, axis.all.output, axis.all.offset};
}

LENSBOX_HOST_DEVICE PackedAxis packed(const PassAxis& axis, FitMode mode) {
  PackedAxis found = {axis.stride, axis.input, {}};
  if (mode == FitMode::kCrop) {
    found.whole = axis.whole;
  } else {
    found.all = {axis.output, axis.offset};
  }
  return found;
}

LENSBOX_HOST_DEVICE PackedTask packed(const ImageTask& task, const Canvases& out) {
  return {task, packed(task.first, out.mode), packed(task.second, out.mode)};
}

LENSBOX_HOST_DEVICE ImageTask unpacked(const PackedTask& task, const Canvases& out) {
  const int32_t first_side = task.first_is_columns ? out.width : out.height;
  const int32_t second_side = task.first_is_columns ? out.height : out.width;
  return {task, unpacked(task.first, first_side, out.mode), unpacked(task.second, second_side, out.mode),
          out.filter};
}

// The images of one launch. A large capacity is a large kernel parameter: at most 4,096 bytes.
template <int kCapacity>
struct FitBatch {
  Canvases out;
  int32_t first_image, images;
  PackedTask tasks[kCapacity];
};

// The layout of a tile in shared memory, as byte offsets. Four pixels along an axis are a quad, one word.
struct TileMemory {
  int32_t first_quads, second_quads;  // that the widest window touches, at most
  int32_t quads;                      // of all windows along the first axis
  int32_t pitch;                      // quads from one quad of the second axis to the next; odd
  int32_t between_pitch;  // words from one quad of the second axis to the next, between the passes
  int32_t ring;           // quads of the second axis that are kept there; 2^n
  int32_t segments;       // pieces of adjacent memory for one index of the slow axis
  int32_t segment_bytes;  // of one of them, as loaded: a multiple of 16
  int32_t stage;          // bytes of a chunk, as loaded
  int32_t pixels, between, first_weights, second_weights, first_spans, second_spans, bytes;
};

// The shared memory of a block if not even one window fits into a tile.
struct WideMemory {
  double areas[2];  // of the windows of the first and the second axis
  uint32_t total;
};

// Return the number of quads that a window of this axis may touch, wherever the window begins. Its width is
// rounded up, and one more pixel may come from the rounding of doubles.
LENSBOX_HOST_DEVICE int32_t window_quads(Filter filter, const PassAxis& axis) {
  const double scale = static_cast<double>(axis.input) / axis.whole;
  const double width = 2.0 * filter_support(filter) * (scale < 1.0 ? 1.0 : scale);
  const int32_t whole = static_cast<int32_t>(width);
  const int32_t pixels = whole + (whole < width ? 2 : 1);
  return (pixels + 6) / 4;
}

LENSBOX_HOST_DEVICE constexpr int32_t pixel_bytes(PixelLayout layout) {
  return layout == PixelLayout::kRgb ? 3 : layout == PixelLayout::kRgba ? 4 : 1;
}

// A window and its area, kept while the weights are computed.
struct MeasuredWindow {
  FilterWindow window;
  double area;
};

// The quads of the tile's windows begin at `start`, counted from the tile's first pixel.
struct QuadSpan {
  int32_t start, quads;
};

// The size of four weights, stored as bytes: the low bytes in one word, the middle and the high bytes in
// others. A window has an odd number of such groups, so threads that read adjacent windows have no bank
// conflicts.
constexpr int32_t kWeightBytes = 16;

LENSBOX_HOST_DEVICE TileMemory tile_memory(const ImageTask& task) {
  TileMemory memory = {};
  memory.first_quads = window_quads(task.filter, task.first);
  memory.second_quads = window_quads(task.filter, task.second);
  const double scale = static_cast<double>(task.first.input) / task.first.whole;
  memory.quads = (static_cast<int32_t>((task.tile - 1) * scale) + 5) / 4 + 1 + memory.first_quads;
  // This limit is far more than fits; it keeps the sums below within 32 bits.
  constexpr int32_t kMostQuads = 1 << 16;
  if (memory.quads > kMostQuads || memory.second_quads > kMostQuads) {
    memory.bytes = INT32_MAX;
    return memory;
  }
  memory.pitch = memory.quads | 1;
  memory.ring = 1;
  while (memory.ring < task.chunk + memory.second_quads + 1)
    memory.ring *= 2;
  if (task.layout != PixelLayout::kStrided) {
    const int32_t fast_quads = task.first_is_fast ? memory.quads : task.chunk;
    const int32_t slow_pixels = 4 * (task.first_is_fast ? task.chunk : memory.quads);
    memory.segments = task.layout == PixelLayout::kPlanar ? 3 : 1;
    // 15 bytes before the first pixel, as loads are aligned, and a word after the last; an odd multiple
    // of 16.
    memory.segment_bytes = ((4 * fast_quads * pixel_bytes(task.layout) + 15 + 4 + 15) / 16 | 1) * 16;
    memory.stage = slow_pixels * memory.segments * memory.segment_bytes;
    memory.pixels = kFitStages * memory.stage;
  }
  memory.between = memory.pixels + task.planes * task.chunk * memory.pitch * 16;
  memory.between_pitch = (task.tile + 3) / 4 * 4;
  memory.first_weights = memory.between + task.planes * memory.ring * memory.between_pitch * 4;
  // While weights are computed, the windows use the memory of `pixels`.
  const int32_t measured =
      memory.pixels + (task.tile + task.band) * static_cast<int32_t>(sizeof(MeasuredWindow));
  if (memory.first_weights < measured) memory.first_weights = measured;
  memory.second_weights = memory.first_weights + (memory.first_quads | 1) * task.tile * kWeightBytes;
  memory.first_spans = memory.second_weights + (memory.second_quads | 1) * task.band * kWeightBytes;
  memory.second_spans = memory.first_spans + task.tile * static_cast<int32_t>(sizeof(QuadSpan));
  memory.bytes = memory.second_spans + task.band * static_cast<int32_t>(sizeof(QuadSpan));
  return memory;
}

LENSBOX_HOST_DEVICE int32_t pieces(int32_t whole, int32_t piece) {
  return (whole + piece - 1) / piece;
}

// Return whether a filter reads a few pixels of the image for each output, whatever the reduction. Such
// filters have no tiles.
LENSBOX_HOST_DEVICE constexpr bool reads_few(Filter filter) {
  return filter == Filter::kNearest || filter == Filter::kOpencvLinear;
}

// The rows of the canvas that one block fills with such a filter.
constexpr int32_t kRowsOfBlock = 16;

// Fill in the tasks of `count` images and return their number of blocks. at_once: number of blocks that the
// device runs at the same time. shared_bytes: receives the shared memory that the largest block needs.
int32_t plan_fit(const ImageView* images, int32_t count, const Canvases& out, int32_t at_once,
                 ImageTask* tasks, int32_t* shared_bytes);

}  // namespace lensbox
