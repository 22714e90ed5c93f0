// Compute one tile of `fit` with one block. The block streams the tile's pixels through shared memory
// once, chunk by chunk along the second axis, and runs both passes on each chunk:
//
//   global memory -> stages      bytes as stored, 16 bytes a thread, asynchronously, one chunk ahead
//   a stage       -> pixels      gray levels or planes; a word is a quad along the first axis
//   pixels        -> between     first pass; a word is a quad along the second axis
//   between       -> canvases    second pass, of the outputs whose windows are complete
#pragma once

#include <cuda_pipeline.h>

#include "fit_canvas.cuh"
#include "fit_pixels.cuh"
#include "fit_plan.h"

namespace lensbox {

// Outputs [begin, begin + count) along an axis, and the pixels [first, end) that they are made of.
struct AxisRange {
  int32_t begin, count, first, end;
};

// `align`: begin at a multiple of four pixels, so that quads along the fast axis lie in memory like the
// first.
__device__ __forceinline__ AxisRange axis_range(Filter filter, const PassAxis& axis, int32_t begin,
                                                int32_t size, bool align) {
  const int32_t count = min(size, axis.output - begin);
  const FilterWindow front = filter_window(filter, axis.begin + begin, axis.input, axis.whole);
  const FilterWindow back = filter_window(filter, axis.begin + begin + count - 1, axis.input, axis.whole);
  return {begin, count, align ? front.first & ~3 : front.first, back.first + back.count};
}

struct Tile {
  ImageTask task;
  TileMemory memory;
  AxisRange first, second;
};

// --- loading ---

// A chunk: the rectangle of the image that is loaded at once, by its fast and its slow axis.
struct Chunk {
  int32_t fast_begin, fast_count, slow_begin, slow_count;
  int64_t slow_stride;
};

__device__ __forceinline__ Chunk chunk_at(const Tile& tile, int32_t quad) {
  const int32_t begin = tile.second.first + 4 * quad;
  const int32_t count = min(4 * tile.task.chunk, tile.second.end - begin);
  const int32_t first_count = tile.first.end - tile.first.first;
  return tile.task.first_is_fast ? Chunk{tile.first.first, first_count, begin, count, tile.task.second.stride}
                                 : Chunk{begin, count, tile.first.first, first_count, tile.task.first.stride};
}

// One byte past the image's last one.
__device__ __forceinline__ const uint8_t* end_of(const ImageTask& task) {
  return task.data + (task.channels - 1) * task.channel_stride + (task.first.input - 1) * task.first.stride +
         (task.second.input - 1) * task.second.stride + 1;
}

// Start to copy a chunk. Each lane copies 16 adjacent bytes; each row of lanes copies lines of memory. Copies
// are aligned, so they bring up to 15 bytes before and after a line too. Past the image's end nothing may be
// read, so its last bytes are copied one by one. (Before its begin, the 16 aligned bytes contain the first
// byte.)
__device__ __forceinline__ void start_loading(const Tile& tile, const Chunk& chunk, uint8_t* stage) {
  const ImageTask& task = tile.task;
  const int32_t pixel = pixel_bytes(task.layout);
  const int32_t last = task.layout == PixelLayout::kRgba ? task.channels : pixel;
  const int32_t bytes = (chunk.fast_count - 1) * pixel + last;
  const ThreadRows threads = thread_rows((bytes + 30) / 16, kWarpBits);
  const uint8_t* const corner = task.data + int64_t{chunk.fast_begin} * pixel;
  const uint8_t* const image_end = end_of(task);
  const int32_t segments = tile.memory.segments;
  for (int32_t line = threads.outer; line < chunk.slow_count * segments; line += threads.outer_step) {
    const int32_t slow = segments == 1 ? line : line / 3;
    const uint8_t* from = corner + (chunk.slow_begin + slow) * chunk.slow_stride +
                          (line - slow * segments) * task.channel_stride;
    const int32_t before = static_cast<int32_t>(reinterpret_cast<uintptr_t>(from) & 15);
    from -= before;
    uint8_t* const to = stage + line * tile.memory.segment_bytes;
    const int32_t end = before + bytes;
    const int32_t whole = static_cast<int32_t>(min(int64_t{end + 15}, image_end - from)) & ~15;
    int32_t at = 16 * threads.inner;
    if (threads.inner_step == 32) {  // a whole warp for a long line
      constexpr int32_t kStep = 16 * 32;
      for (; at + 3 * kStep < whole; at += 4 * kStep) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          __pipeline_memcpy_async(to + at + i * kStep, from + at + i * kStep, 16);
      }
    }
    for (; at < whole; at += 16 * threads.inner_step)
      __pipeline_memcpy_async(to + at, from + at, 16);
    for (int32_t at = whole + threads.inner; at < end; at += threads.inner_step)
      to[at] = from[at];
  }
}

// --- unpacking ---

// Where a line of a chunk begins in the stage: in word `word`, after `shift` bits.
struct Line {
  const uint8_t* word;
  uint32_t shift;
};

__device__ __forceinline__ Line line_at(const Tile& tile, const Chunk& chunk, const uint8_t* stage,
                                        int32_t slow, int32_t segment) {
  const ImageTask& task = tile.task;
  const uint32_t address =
      static_cast<uint32_t>(reinterpret_cast<uintptr_t>(task.data)) +
      static_cast<uint32_t>(chunk.fast_begin * pixel_bytes(task.layout)) +
      static_cast<uint32_t>(chunk.slow_begin + slow) * static_cast<uint32_t>(chunk.slow_stride) +
      static_cast<uint32_t>(segment) * static_cast<uint32_t>(task.channel_stride);
  return {stage + (slow * tile.memory.segments + segment) * tile.memory.segment_bytes + (address & 12u),
          8 * (address & 3u)};
}

// Read kCount words of a line, from an aligned word on.
template <int kCount, bool kAligned>
__device__ __forceinline__ void load_words(const Line& line, int32_t byte, uint32_t (&words)[4]) {
  const uint32_t* const at = reinterpret_cast<const uint32_t*>(line.word + byte);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    words[i] = at[i];
  if constexpr (!kAligned) {
    const uint32_t next = at[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      words[i] = __funnelshift_r(words[i], i + 1 < kCount ? words[i + 1] : next, line.shift);
    }
  }
}

template <PixelLayout kLayout>
constexpr int kSegments = kLayout == PixelLayout::kPlanar ? 3 : 1;

// Return four pixels along the fast axis, one word per plane, from the bytes that start_loading() copied.
template <PixelLayout kLayout, int kPlanes, bool kAligned>
__device__ __forceinline__ void read_quad(const Line (&line)[kSegments<kLayout>], int32_t fast_quad,
                                          uint32_t (&planes)[kPlanes]) {
  const int32_t byte = 4 * fast_quad * pixel_bytes(kLayout);
  uint32_t words[4];
  if constexpr (kLayout == PixelLayout::kRgb || kLayout == PixelLayout::kRgba) {
    load_words<pixel_bytes(kLayout), kAligned>(line[0], byte, words);
    if constexpr (kPlanes == 1) {
      planes[0] = kLayout == PixelLayout::kRgb ? gray_of_rgb(words) : gray_of_rgba(words);
    } else if constexpr (kLayout == PixelLayout::kRgb) {
      planes_of_rgb(words, planes);
    } else {
      planes_of_rgba(words, planes);
    }
  } else {
    uint32_t channels[kSegments<kLayout>];
#pragma unroll
    for (int channel = 0; channel < kSegments<kLayout>; ++channel) {
      load_words<1, kAligned>(line[channel], byte, words);
      channels[channel] = words[0];
    }
    if constexpr (kPlanes == 1 && kLayout == PixelLayout::kPlanar) {
      planes[0] = gray_of_planes(channels[0], channels[1], channels[2]);
    } else {
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane)
        planes[plane] = channels[plane % kSegments<kLayout>];
    }
  }
}

// Return a plane's level of the pixel that begins at an address.
__device__ __forceinline__ uint32_t level_at(const ImageTask& task, int32_t plane, const uint8_t* at) {
  if (task.channels == 1) return at[0];
  if (task.planes == 3) return at[plane * task.channel_stride];
  return luma(at[0], at[task.channel_stride], at[2 * task.channel_stride]);
}

// Return a pixel of an image with any strides.
__device__ __forceinline__ uint32_t pixel_at(const ImageTask& task, int32_t plane, int64_t first,
                                             int64_t second) {
  return level_at(task, plane, task.data + first * task.first.stride + second * task.second.stride);
}

// Return four pixels from global memory. Pixels past the chunk have no weight, so the last pixel replaces
// them.
template <int kPlanes>
__device__ __forceinline__ void read_strided_quad(const Tile& tile, const Chunk& chunk, int32_t slow,
                                                  int32_t fast_quad, uint32_t (&planes)[kPlanes]) {
  const int32_t at_slow = chunk.slow_begin + min(slow, chunk.slow_count - 1);
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane)
    planes[plane] = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int32_t at_fast = chunk.fast_begin + min(4 * fast_quad + i, chunk.fast_count - 1);
    const int32_t first = tile.task.first_is_fast ? at_fast : at_slow;
    const int32_t second = tile.task.first_is_fast ? at_slow : at_fast;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      planes[plane] |= pixel_at(tile.task, plane, first, second) << 8 * i;
    }
  }
}

// Each thread takes 4 x 4 pixels at a time; adjacent threads take adjacent squares along the fast axis. A
// thread writes four words: word i holds the quad along the first axis at index i of the quad along the
// second.
template <PixelLayout kLayout, int kPlanes, bool kAligned>
__device__ __forceinline__ void unpack_lines(const Tile& tile, const Chunk& chunk, int32_t slow,
                                             const Line (&lines)[4][kSegments<kLayout>],
                                             const ThreadRows& threads, uint4* pixels) {
  const bool first_is_fast = tile.task.first_is_fast;
  const int32_t fast_quads = pieces(chunk.fast_count, 4);
  for (int32_t fast = threads.inner; fast < fast_quads; fast += threads.inner_step) {
    uint32_t quads[4][kPlanes];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kLayout == PixelLayout::kStrided) {
        read_strided_quad<kPlanes>(tile, chunk, 4 * slow + i, fast, quads[i]);
      } else {
        read_quad<kLayout, kPlanes, kAligned>(lines[i], fast, quads[i]);
      }
    }
    const int32_t first = first_is_fast ? fast : slow, second = first_is_fast ? slow : fast;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const uint4 words = make_uint4(quads[0][plane], quads[1][plane], quads[2][plane], quads[3][plane]);
      pixels[(plane * tile.task.chunk + second) * tile.memory.pitch + first] =
          first_is_fast ? words : transposed(words);
    }
  }
}

template <PixelLayout kLayout, int kPlanes>
__device__ __forceinline__ void unpack(const Tile& tile, const Chunk& chunk, const uint8_t* stage,
                                       uint4* pixels) {
  const int32_t slow_quads = pieces(chunk.slow_count, 4);
  const ThreadRows threads = thread_rows(pieces(chunk.fast_count, 4), kBlockBits);
  for (int32_t slow = threads.outer; slow < slow_quads; slow += threads.outer_step) {
    Line lines[4][kSegments<kLayout>] = {};
    uint32_t shifts = 0;
    if constexpr (kLayout != PixelLayout::kStrided) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int segment = 0; segment < kSegments<kLayout>; ++segment) {
          lines[i][segment] = line_at(tile, chunk, stage, 4 * slow + i, segment);
          shifts |= lines[i][segment].shift;
        }
      }
    }
    if (kLayout == PixelLayout::kStrided || shifts == 0) {
      unpack_lines<kLayout, kPlanes, true>(tile, chunk, slow, lines, threads, pixels);
    } else {
      unpack_lines<kLayout, kPlanes, false>(tile, chunk, slow, lines, threads, pixels);
    }
  }
}

template <int kPlanes>
__device__ __forceinline__ void unpack_layout(const Tile& tile, const Chunk& chunk, const uint8_t* stage,
                                              uint4* pixels) {
  switch (tile.task.layout) {
    case PixelLayout::kGray:
      return unpack<PixelLayout::kGray, kPlanes>(tile, chunk, stage, pixels);
    case PixelLayout::kPlanar:
      return unpack<PixelLayout::kPlanar, kPlanes>(tile, chunk, stage, pixels);
    case PixelLayout::kRgb:
      return unpack<PixelLayout::kRgb, kPlanes>(tile, chunk, stage, pixels);
    case PixelLayout::kRgba:
      return unpack<PixelLayout::kRgba, kPlanes>(tile, chunk, stage, pixels);
    case PixelLayout::kStrided:
      return unpack<PixelLayout::kStrided, kPlanes>(tile, chunk, stage, pixels);
  }
}

// --- weights ---

// Each thread computes the area of a window, added up in order, as Pillow does.
__device__ __forceinline__ void measure_windows(Filter filter, const PassAxis& axis, const AxisRange& range,
                                                MeasuredWindow* windows, QuadSpan* spans) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < range.count; i += kFitThreads) {
    const FilterWindow window = filter_window(filter, axis.begin + range.begin + i, axis.input, axis.whole);
    windows[i] = {window, filter_area(filter, window)};
    const int32_t begin = window.first - range.first;
    spans[i] = {begin / 4, pieces(begin + window.count, 4) - begin / 4};
  }
}

// Each thread computes four weights of a window; the weights of a window are adjacent.
__device__ __forceinline__ void write_weights(Filter filter, const MeasuredWindow* windows,
                                              const AxisRange& range, int32_t quads, uint4* weights) {
  const int32_t pitch = quads | 1;
  for (int32_t item = static_cast<int32_t>(threadIdx.x); item < quads * range.count; item += kFitThreads) {
    const int32_t of = item / quads, quad = item - of * quads;
    const MeasuredWindow& measured = windows[of];
    const int32_t begin = measured.window.first - range.first;
    uint32_t values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t at = 4 * (begin / 4 + quad) + i - begin;
      values[i] = 0;
      if (at >= 0 && at < measured.window.count) {
        values[i] =
            static_cast<uint32_t>(fixed_weight(filter_height(filter, measured.window, at), measured.area));
      }
    }
    weights[of * pitch + quad] = transposed(make_uint4(values[0], values[1], values[2], values[3]));
  }
}

// --- passes ---

// Compute one output of the first axis for a quad of the second axis: four windows with the same weights.
// kQuads is the number of quads of a window, 0 for any number.
template <int kQuads>
__device__ __forceinline__ uint32_t filtered_quad(const uint4* pixels, const uint4* weights, int32_t quads) {
  WindowSum sums[4];
#pragma unroll
  for (int32_t i = 0; i < (kQuads > 0 ? kQuads : quads); ++i) {
    add_to_four(sums, pixels[i], weights[i]);
  }
  return bytes_of_four(sums);
}

// Each thread computes one output of the first axis for one quad of the second axis.
template <int kQuads>
__device__ __forceinline__ void first_pass(const Tile& tile, int32_t quad, const uint4* pixels,
                                           const uint4* weights, const QuadSpan* spans, uint32_t* between) {
  const int32_t outputs = tile.first.count, chunk = tile.task.chunk;
  const int32_t weights_pitch = tile.memory.first_quads | 1;
  const ThreadRows threads = thread_rows(outputs, kBlockBits);
  for (int32_t row = threads.outer; row < tile.task.planes * chunk; row += threads.outer_step) {
    const int32_t plane = row >= 2 * chunk ? 2 : row >= chunk ? 1 : 0;
    const int32_t slot = (quad + row - plane * chunk) & (tile.memory.ring - 1);
    uint32_t* const to = between + (plane * tile.memory.ring + slot) * tile.memory.between_pitch;
    for (int32_t output = threads.inner; output < outputs; output += threads.inner_step) {
      to[output] = filtered_quad<kQuads>(pixels + row * tile.memory.pitch + spans[output].start,
                                         weights + output * weights_pitch, tile.memory.first_quads);
    }
  }
}

// Unroll the loop for the window widths of reductions up to eleven.
__device__ __forceinline__ void first_pass_of(const Tile& tile, int32_t quad, const uint4* pixels,
                                              const uint4* weights, const QuadSpan* spans,
                                              uint32_t* between) {
  switch (tile.memory.first_quads) {
    case 2:
      return first_pass<2>(tile, quad, pixels, weights, spans, between);
    case 3:
      return first_pass<3>(tile, quad, pixels, weights, spans, between);
    case 4:
      return first_pass<4>(tile, quad, pixels, weights, spans, between);
    case 5:
      return first_pass<5>(tile, quad, pixels, weights, spans, between);
    case 6:
      return first_pass<6>(tile, quad, pixels, weights, spans, between);
    case 7:
      return first_pass<7>(tile, quad, pixels, weights, spans, between);
    default:
      return first_pass<0>(tile, quad, pixels, weights, spans, between);
  }
}

// Each thread computes and writes four adjacent outputs of the first axis, at one index of [begin, end) of
// the second axis.
__device__ __forceinline__ void second_pass(const Tile& tile, const Canvases& out, uint8_t* canvas,
                                            int32_t begin, int32_t end, const uint32_t* between,
                                            const uint4* weights, const QuadSpan* spans) {
  const ImageTask& task = tile.task;
  const int32_t weights_pitch = tile.memory.second_quads | 1;
  const int32_t first_step = task.first_is_columns ? 1 : out.width;
  const int32_t second_step = task.first_is_columns ? out.width : 1;
  const int32_t plane_size = out.height * out.width, plane_step = out.is_bgr ? -plane_size : plane_size;
  const int32_t groups = pieces(tile.first.count, 4);
  const ThreadRows threads = thread_rows(groups, kBlockBits);
  for (int32_t line = begin + threads.outer; line < end; line += threads.outer_step) {
    const QuadSpan span = spans[line];
    for (int32_t group = threads.inner; group < groups; group += threads.inner_step) {
      // A canvas is less than 2^30 bytes.
      int32_t offset = (task.first.offset + tile.first.begin + 4 * group) * first_step +
                       (task.second.offset + tile.second.begin + line) * second_step +
                       out.plane_of(0) * plane_size;
      for (int32_t plane = 0; plane < task.planes; ++plane) {
        const uint32_t* const from =
            between + plane * tile.memory.ring * tile.memory.between_pitch + 4 * group;
        WindowSum sums[4];
        for (int32_t i = 0; i < span.quads; ++i) {
          const int32_t slot = (span.start + i) & (tile.memory.ring - 1);
          add_to_four(sums, *reinterpret_cast<const uint4*>(from + slot * tile.memory.between_pitch),
                      weights[line * weights_pitch + i]);
        }
        const uint32_t bytes = bytes_of_four(sums);
        const int32_t copies = task.planes == 1 ? out.channels : 1;
        for (int32_t copy = 0; copy < copies; ++copy, offset += plane_step) {
          store_bytes(canvas + offset, bytes, tile.first.count - 4 * group, first_step);
        }
      }
    }
  }
}

// --- the tile ---

// Compute tile `block` of the image's `blocks` tiles. `canvas` is the image's canvas.
__device__ __forceinline__ void fit_tile(const ImageTask& task, const Canvases& out, uint8_t* canvas,
                                         int32_t block, int32_t blocks, uint8_t* shared) {
  Tile tile;
  tile.task = task;
  tile.memory = tile_memory(task);
  const int32_t tiles = pieces(task.first.output, task.tile);
  const int32_t band = block / tiles;
  tile.first =
      axis_range(task.filter, task.first, (block - band * tiles) * task.tile, task.tile, task.first_is_fast);
  tile.second = axis_range(task.filter, task.second, band * task.band, task.band, !task.first_is_fast);
  uint4* const pixels = reinterpret_cast<uint4*>(shared + tile.memory.pixels);
  uint32_t* const between = reinterpret_cast<uint32_t*>(shared + tile.memory.between);
  uint4* const first_weights = reinterpret_cast<uint4*>(shared + tile.memory.first_weights);
  uint4* const second_weights = reinterpret_cast<uint4*>(shared + tile.memory.second_weights);
  QuadSpan* const first_spans = reinterpret_cast<QuadSpan*>(shared + tile.memory.first_spans);
  QuadSpan* const second_spans = reinterpret_cast<QuadSpan*>(shared + tile.memory.second_spans);

  const int32_t quads = pieces(tile.second.end - tile.second.first, 4);
  const bool staged = task.layout != PixelLayout::kStrided;
  if (staged) start_loading(tile, chunk_at(tile, 0), shared);
  __pipeline_commit();

  // Write padding and compute weights while the first chunk is being loaded.
  fill_padding(task, out, canvas, block, blocks);
  MeasuredWindow* const first_windows = reinterpret_cast<MeasuredWindow*>(shared + tile.memory.pixels);
  MeasuredWindow* const second_windows = first_windows + tile.first.count;
  measure_windows(task.filter, task.first, tile.first, first_windows, first_spans);
  measure_windows(task.filter, task.second, tile.second, second_windows, second_spans);
  __syncthreads();
  write_weights(task.filter, first_windows, tile.first, tile.memory.first_quads, first_weights);
  write_weights(task.filter, second_windows, tile.second, tile.memory.second_quads, second_weights);

  int32_t done = 0;  // outputs of the second axis that are written
  const auto finish = [&](int32_t ready) {
    const int32_t begin = done;
    while (done < tile.second.count && second_spans[done].start + second_spans[done].quads <= ready)
      ++done;
    second_pass(tile, out, canvas, begin, done, between, second_weights, second_spans);
  };
  int32_t at_stage = 0;
  for (int32_t quad = 0; quad < quads; quad += task.chunk) {
    __pipeline_wait_prior(0);
    __syncthreads();  // the chunk is loaded, `pixels` has been read, `between` is written
    const Chunk chunk = chunk_at(tile, quad);
    const uint8_t* const stage = shared + at_stage * tile.memory.stage;
    at_stage = (at_stage + 1) % kFitStages;
    const int32_t next = quad + task.chunk;
    if (staged && next < quads) {
      start_loading(tile, chunk_at(tile, next), shared + at_stage * tile.memory.stage);
    }
    __pipeline_commit();
    if (task.planes == 1) {
      unpack_layout<1>(tile, chunk, stage, pixels);
    } else {
      unpack_layout<3>(tile, chunk, stage, pixels);
    }
    finish(quad);
    __syncthreads();  // `pixels` is written, `between` and the stage have been read
    first_pass_of(tile, quad, pixels, first_weights, first_spans, between);
  }
  __syncthreads();
  finish(quads);
}

}  // namespace lensbox
