#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "../fit_math.h"
#include "filters.h"
#include "image_rows.h"
#include "launchers.h"
#include "parallel.h"
#include "vectors.h"

namespace lensbox {

namespace {

// An image and all values that its canvas depends on.
struct FittedImage {
  ImageView image;  // the part that the canvas shows
  VisibleRange columns, rows;
  const FilterTable* across;  // from the image's columns to those of the canvas
  const FilterTable* down;    // the same for rows
  bool rows_first;
};

// Return the plane of canvas `index` that shows an image's channel.
uint8_t* plane(const Canvases& out, int64_t index, int32_t channel) {
  return out.pixels + (index * out.channels + out.plane_of(channel)) * out.height * out.width;
}

// The bytes read from one row before the next row. Sequential reads are fastest, and a band of segments of
// this size stays in the L2 cache.
constexpr int32_t kSegmentBytes = 8192;

// Both passes over an image, for one plane of the canvas or for three planes of interleaved colours. The
// passes take the image's rows in order, so each row is read once and little memory is kept between the
// passes.
class Resampling {
 public:
  // Writes `channels` planes of canvas `index` from the plane of `first_channel` on.
  Resampling(const FittedImage& fitted, const Canvases& out, int64_t index, int32_t first_channel,
             int32_t channels)
      : fitted_(fitted),
        out_(out),
        index_(index),
        first_channel_(first_channel),
        channels_(channels),
        rows_(fitted.image, channels),
        columns_(*fitted.across, rows_.pixel_bytes(), channels),
        segment_(fitted.rows_first ? rows_.width()
                                   : std::min(rows_.width(), kSegmentBytes / rows_.pixel_bytes() / 16 * 16)),
        band_pitch_((segment_ * rows_.pixel_bytes() + 63) / 64 * 64 | 64),
        // Clear the memory: columns of rows below the image are combined too.
        band_(std::make_unique<uint8_t[]>(ColumnFilter::kRows * band_pitch_)) {}

  // Write the fitted image.
  void run() { fitted_.rows_first ? rows_then_columns() : columns_then_rows(); }

 private:
  // Return the address of row y of the fitted image in a plane of the canvas.
  uint8_t* canvas_row(int32_t y, int32_t channel) const {
    return plane(out_, index_, first_channel_ + channel) + (fitted_.rows.offset + y) * out_.width +
           fitted_.columns.offset;
  }

  // Combine the columns of the image's rows [begin, end), at most a band. Write a band.
  void filter_columns(int64_t begin, int64_t end, uint8_t* out) {
    for (int64_t column = 0; column < rows_.width(); column += segment_) {
      const int64_t count = std::min<int64_t>(segment_, rows_.width() - column);
      for (int64_t row = begin; row < end; ++row) {
        rows_.write(row, column, count, band_.get() + (row - begin) * band_pitch_);
      }
      columns_.add(band_.get(), band_pitch_, count);
    }
    columns_.finish(out);
  }

  void columns_then_rows() {
    const FilterTable& down = *fitted_.down;
    constexpr int64_t kBand = ColumnFilter::kRows;
    const int32_t end = down.output();
    int32_t begin = 0;
    SlidingRows between(down.first(begin), down.longest() + 2 * kBand, columns_.out_pitch());
    while (begin < end) {
      uint8_t* const below = between.below(kBand, down.first(begin));
      const int64_t count = std::min<int64_t>(kBand, down.end(end - 1) - between.end());
      filter_columns(between.end(), between.end() + count, below);
      between.append(count);
      const int32_t ready = std::min(end, down.ready(begin, between.end()));
      if (ready == begin) continue;
      for (int32_t channel = 0; channel < channels_; ++channel) {
        filter_rows(down, begin, ready, between.row(down.first(begin)) + channel * fitted_.columns.count,
                    between.pitch(), fitted_.columns.count, canvas_row(begin, channel), out_.width);
      }
      begin = ready;
    }
  }

  // Combine the image's rows to rows [begin, end) of the fitted image. If the image's memory does not hold
  // the rows as they are, `converted` keeps the rows that later outputs need.
  void filter_image_rows(int32_t begin, int32_t end, SlidingRows& converted, uint8_t* out,
                         int64_t out_pitch) {
    const FilterTable& down = *fitted_.down;
    if (rows_.are_in_memory()) {
      filter_rows(down, begin, end, rows_.pixel(down.first(begin), 0), rows_.pitch(),
                  rows_.bytes(rows_.width()), out, out_pitch);
      return;
    }
    for (int32_t y = begin; y < end; ++y) {
      while (converted.end() < down.end(y)) {
        uint8_t* const below = converted.below(1, down.first(y));
        rows_.write(converted.end(), 0, rows_.width(), below);
        converted.append(1);
      }
      filter_rows(down, y, y + 1, converted.row(down.first(y)), converted.pitch(), converted.pitch(),
                  out + (y - begin) * out_pitch, out_pitch);
    }
  }

  void rows_then_columns() {
    constexpr int32_t kBand = ColumnFilter::kRows;
    const FilterTable& down = *fitted_.down;
    const int32_t end = down.output();
    SlidingRows converted(down.first(0), rows_.are_in_memory() ? 0 : 2 * int64_t{down.longest()},
                          int64_t{rows_.width()} * rows_.pixel_bytes());
    const auto filtered = std::make_unique_for_overwrite<uint8_t[]>(kBand * columns_.out_pitch());
    for (int32_t begin = 0; begin < end; begin += kBand) {
      const int32_t count = std::min(kBand, end - begin);
      filter_image_rows(begin, begin + count, converted, band_.get(), band_pitch_);
      columns_.add(band_.get(), band_pitch_, rows_.width());
      columns_.finish(filtered.get());
      for (int32_t i = 0; i < count; ++i) {
        for (int32_t channel = 0; channel < channels_; ++channel) {
          std::memcpy(canvas_row(begin + i, channel),
                      filtered.get() + i * columns_.out_pitch() + channel * fitted_.columns.count,
                      fitted_.columns.count);
        }
      }
    }
  }

  const FittedImage& fitted_;
  const Canvases& out_;
  int64_t index_;
  int32_t first_channel_, channels_;
  ImageRows rows_;
  ColumnFilter columns_;
  int64_t segment_;     // pixels of a row in the band at once
  int64_t band_pitch_;  // an odd number of cache lines, so that rows do not push each other out
  std::unique_ptr<uint8_t[]> band_;
};

// Call write(image, first channel, number of channels) for the planes of the canvas that differ: once, or
// once for each colour if the colours are not interleaved, so that they are three gray images.
template <typename Write>
void for_planes(const ImageView& image, const Canvases& out, Write write) {
  if (image.channels == 1 || out.channels == 1 || ImageRows::holds_colours(image)) {
    write(image, 0, image.channels == 1 ? 1 : out.channels);
    return;
  }
  for (int32_t channel = 0; channel < out.channels; ++channel) {
    ImageView of_channel = image;
    of_channel.data += channel * image.channel_stride;
    of_channel.channels = 1;
    write(of_channel, channel, 1);
  }
}

// Return the pixels that the shown outputs of an axis take.
std::vector<int32_t> nearest_pixels(int32_t input, int64_t whole, const VisibleRange& shown) {
  NearestPixels walk(input, static_cast<int32_t>(whole));
  for (int64_t i = 0; i < shown.begin; ++i) {
    walk.next();
  }
  std::vector<int32_t> pixels(shown.count);
  for (int32_t& pixel : pixels) {
    pixel = walk.next();
  }
  return pixels;
}

#ifdef __x86_64__
[[gnu::always_inline]] inline int32_t word_at(const uint8_t* bytes) {
  int32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Load four pixels at these places, 4 bytes each, and put their bytes into the order of colours.
[[LENSBOX_AVX2, gnu::always_inline]] inline __m128i colours_of_four(const uint8_t* row,
                                                                    const int32_t* places) {
  const __m128i pixels = _mm_setr_epi32(word_at(row + places[0]), word_at(row + places[1]),
                                        word_at(row + places[2]), word_at(row + places[3]));
  return _mm_shuffle_epi8(pixels, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

// Write three planes, which lie `step` bytes apart, in groups of 16 pixels. Return the number of pixels.
// `next` is the row that follows, which memory prefetches meanwhile.
[[LENSBOX_AVX2]] int64_t take_colours_avx2(const uint8_t* row, const uint8_t* next, const int32_t* places,
                                           int64_t count, uint8_t* to, int64_t step) {
  int64_t x = 0;
  for (; x + 16 <= count; x += 16) {
    for (int i = 0; i < 16; i += 4) {
      _mm_prefetch(reinterpret_cast<const char*>(next + places[x + i]), _MM_HINT_T0);
    }
    const __m128i a = colours_of_four(row, places + x), b = colours_of_four(row, places + x + 4);
    const __m128i c = colours_of_four(row, places + x + 8), d = colours_of_four(row, places + x + 12);
    const __m128i left = _mm_unpacklo_epi32(a, b), right = _mm_unpacklo_epi32(c, d);
    const __m128i blue = _mm_unpacklo_epi64(_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + x), _mm_unpacklo_epi64(left, right));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + step + x), _mm_unpackhi_epi64(left, right));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * step + x), blue);
  }
  return x;
}
#endif

// Write to canvas `index` the pixels that kNearest takes.
void take_nearest(const ImageView& image, const Fit& fit, const VisibleRange& columns,
                  const VisibleRange& rows, const Canvases& out, int64_t index) {
  const std::vector<int32_t> across = nearest_pixels(image.width, fit.width, columns);
  const std::vector<int32_t> down = nearest_pixels(image.height, fit.height, rows);
  const int64_t across_step = image.column_stride, green = image.channel_stride, blue = 2 * green;
  const int64_t count = columns.count;
  const int64_t step = (out.is_bgr ? -1 : 1) * int64_t{out.height} * out.width;
  const bool is_gray = image.channels == 1;
  const int32_t planes = is_gray ? 1 : out.channels;
  // A fourth byte follows each pixel of a row but the last one.
  std::vector<int32_t> places;
  if (planes == 3 && ImageRows::holds_colours(image)) {
    for (size_t x = 0; x < across.size() && across[x] < image.width - 1; ++x) {
      places.push_back(across[x] * static_cast<int32_t>(across_step));
    }
  }
  uint8_t* to = plane(out, index, 0) + rows.offset * out.width + columns.offset;
  for (int64_t y = 0; y < rows.count; ++y, to += out.width) {
    if (y > 0 && down[y] == down[y - 1]) {
      for (int32_t channel = 0; channel < planes; ++channel) {
        std::memcpy(to + channel * step, to + channel * step - out.width, count);
      }
      continue;
    }
    const uint8_t* const from = image.data + down[y] * image.row_stride;
    int64_t x = 0;
#ifdef __x86_64__
    if (widest_vectors() != Vectors::kBaseline) {
      x = take_colours_avx2(from, image.data + down[std::min(y + 1, rows.count - 1)] * image.row_stride,
                            places.data(), std::ssize(places), to, step);
    }
#endif
    for (; x < count; ++x) {
      const uint8_t* const pixel = from + across[x] * across_step;
      if (planes == 3) {
        to[x] = pixel[0];
        to[x + step] = pixel[green];
        to[x + 2 * step] = pixel[blue];
      } else {
        to[x] = is_gray ? pixel[0] : luma(pixel[0], pixel[green], pixel[blue]);
      }
    }
  }
}

// Write the padding of canvas `index`, and the further channels of a gray image.
void pad(int32_t image_channels, const VisibleRange& columns, const VisibleRange& rows, const Canvases& out,
         int64_t index) {
  const int64_t right = columns.offset + columns.count, below = rows.offset + rows.count;
  for (int32_t channel = 0; channel < out.channels; ++channel) {
    uint8_t* const canvas = plane(out, index, channel);
    std::memset(canvas, out.fill, rows.offset * out.width);
    std::memset(canvas + below * out.width, out.fill, (out.height - below) * out.width);
    for (int64_t y = rows.offset; y < below; ++y) {
      uint8_t* const row = canvas + y * out.width;
      if (channel > 0 && image_channels == 1) {  // the same gray three times
        std::memcpy(row, plane(out, index, 0) + y * out.width, out.width);
        continue;
      }
      std::memset(row, out.fill, columns.offset);
      std::memset(row + right, out.fill, out.width - right);
    }
  }
}

// The filter tables of a call along one axis, by the sides of images. The shown part depends on the canvas
// too: columns and rows have tables of their own. References to tables stay valid.
using FilterTables = std::map<std::pair<int32_t, int32_t>, FilterTable>;

const FilterTable* find_table(FilterTables& tables, Filter filter, int32_t input, int64_t whole,
                              const VisibleRange& shown) {
  const auto output = static_cast<int32_t>(whole), begin = static_cast<int32_t>(shown.begin);
  const auto sides = std::make_pair(input, output);
  return &tables.try_emplace(sides, filter, input, output, begin, static_cast<int32_t>(shown.count))
              .first->second;
}

}  // namespace

void lensbox_cpu_fit(const ImageView* images, int64_t image_count, const Canvases& out) {
  FilterTables across, down;  // made before the loop, as images of one size share them
  std::vector<std::pair<const FilterTable*, const FilterTable*>> tables(image_count);
  const bool has_tables = out.filter != Filter::kNearest && out.filter != Filter::kOpencvLinear;
  for (int64_t index = 0; has_tables && index < image_count; ++index) {
    const ImageView& image = images[index];
    const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height, out.mode);
    tables[index] = {
        find_table(across, out.filter, image.width, fit.width, visible_range(fit.width, out.width)),
        find_table(down, out.filter, image.height, fit.height, visible_range(fit.height, out.height))};
  }
  parallel_for(image_count, [&](int64_t index) {
    const ImageView& image = images[index];
    const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height, out.mode);
    const VisibleRange columns = visible_range(fit.width, out.width),
                       rows = visible_range(fit.height, out.height);
    write_geometry(image, fit, out.geometry + 6 * index);
    if (out.filter == Filter::kNearest) {
      take_nearest(image, fit, columns, rows, out, index);
    } else if (out.filter == Filter::kOpencvLinear) {
      for_planes(image, out, [&](const ImageView& part, int32_t channel, int32_t channels) {
        fit_linear(part, fit, columns, rows, channels,
                   (out.is_bgr ? -1 : 1) * int64_t{out.height} * out.width, out.width,
                   plane(out, index, channel) + rows.offset * out.width + columns.offset);
      });
    } else {
      FittedImage fitted = {image,
                            columns,
                            rows,
                            tables[index].first,
                            tables[index].second,
                            rows_first(image.width, image.height, fit)};
      fitted.image.data += fitted.across->origin() * image.column_stride;
      fitted.image.data += fitted.down->origin() * image.row_stride;
      fitted.image.width = fitted.across->input();
      fitted.image.height = fitted.down->input();
      for_planes(fitted.image, out, [&](const ImageView& part, int32_t channel, int32_t channels) {
        FittedImage of_part = fitted;
        of_part.image = part;
        Resampling(of_part, out, index, channel, channels).run();
      });
    }
    pad(image.channels, columns, rows, out, index);
  });
}

void lensbox_cpu_look_up(const LevelTable& table, const uint8_t* pixels, int64_t planes, int64_t plane_size,
                         void* out) {
  const auto write = [&](auto* to, const auto* levels) {
    for (int64_t plane = 0; plane < planes; ++plane) {
      const auto* const of_channel = levels + 256 * (plane % table.channels);
      for (int64_t i = 0; i < plane_size; ++i) {
        *to++ = of_channel[*pixels++];
      }
    }
  };
  if (table.is_float32) {
    write(static_cast<float*>(out), table.float32);
  } else {
    write(static_cast<uint16_t*>(out), table.bits16);
  }
}

}  // namespace lensbox
