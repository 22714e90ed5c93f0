#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "../letterbox_math.h"
#include "filters.h"
#include "image_rows.h"
#include "launchers.h"

namespace lensbox {

namespace {

// An image and all values that its canvas depends on.
struct FittedImage {
  ImageView image;
  Fit fit;
  const FilterTable* across;  // from image.width to fit.width
  const FilterTable* down;    // from image.height to fit.height
};

// The bytes read from one row before the next row. Sequential reads are fastest, and a band of segments of
// this size stays in the L2 cache.
constexpr int32_t kSegmentBytes = 8192;

// Both passes over an image, for one plane of the canvas or for three planes of interleaved colours. The
// passes take the image's rows in order, so each row is read once and little memory is kept between the
// passes.
class Resampling {
 public:
  // `planes` is the first of `channels` planes of the canvas.
  Resampling(const FittedImage& fitted, const Canvases& out, uint8_t* planes, int32_t channels)
      : fitted_(fitted),
        out_(out),
        planes_(planes),
        channels_(channels),
        rows_(fitted.image, channels),
        columns_(*fitted.across, rows_.pixel_bytes(), channels),
        rows_first_(rows_first(rows_.width(), rows_.height(), fitted.fit)),
        segment_(rows_first_ ? rows_.width()
                             : std::min(rows_.width(), kSegmentBytes / rows_.pixel_bytes() / 16 * 16)),
        band_pitch_((segment_ * rows_.pixel_bytes() + 63) / 64 * 64 | 64),
        // Clear the memory: columns of rows below the image are combined too.
        band_(std::make_unique<uint8_t[]>(ColumnFilter::kRows * band_pitch_)) {}

  // Write the fitted image.
  void run() { rows_first_ ? rows_then_columns() : columns_then_rows(); }

 private:
  // Return the address of row y of the fitted image in a plane of the canvas.
  uint8_t* canvas_row(int32_t y, int32_t channel) const {
    const int64_t row = int64_t{channel} * out_.height + fitted_.fit.top + y;
    return planes_ + row * out_.width + fitted_.fit.left;
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
    const auto end = static_cast<int32_t>(fitted_.fit.height);
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
        filter_rows(down, begin, ready, between.row(down.first(begin)) + channel * fitted_.fit.width,
                    between.pitch(), fitted_.fit.width, canvas_row(begin, channel), out_.width);
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
    const auto end = static_cast<int32_t>(fitted_.fit.height);
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
                      filtered.get() + i * columns_.out_pitch() + channel * fitted_.fit.width,
                      fitted_.fit.width);
        }
      }
    }
  }

  const FittedImage& fitted_;
  const Canvases& out_;
  uint8_t* planes_;
  int32_t channels_;
  ImageRows rows_;
  ColumnFilter columns_;
  bool rows_first_;
  int64_t segment_;     // pixels of a row in the band at once
  int64_t band_pitch_;  // an odd number of cache lines, so that rows do not push each other out
  std::unique_ptr<uint8_t[]> band_;
};

uint8_t* plane(const Canvases& out, int64_t index, int32_t channel) {
  return out.pixels + (index * out.channels + channel) * out.height * out.width;
}

// Write the fitted image to canvas `index`, and the padding on its left and right.
void letterbox_rows(const FittedImage& fitted, const Canvases& out, int64_t index) {
  const Fit& fit = fitted.fit;
  const ImageView& image = fitted.image;
  if (image.channels == 1 || out.channels == 1 || ImageRows::holds_colours(image)) {
    const int32_t channels = image.channels == 1 ? 1 : out.channels;
    Resampling(fitted, out, plane(out, index, 0), channels).run();
  } else {
    // Colours that are not interleaved are three gray images.
    for (int32_t channel = 0; channel < out.channels; ++channel) {
      FittedImage of_channel = fitted;
      of_channel.image.data += channel * image.channel_stride;
      of_channel.image.channels = 1;
      Resampling(of_channel, out, plane(out, index, channel), 1).run();
    }
  }
  for (int32_t channel = 0; channel < out.channels; ++channel) {
    for (int64_t y = fit.top; y < fit.top + fit.height; ++y) {
      uint8_t* const row = plane(out, index, channel) + y * out.width;
      if (channel > 0 && image.channels == 1) {  // the same gray three times
        std::memcpy(row, plane(out, index, 0) + y * out.width, out.width);
        continue;
      }
      std::memset(row, out.fill, fit.left);
      std::memset(row + fit.left + fit.width, out.fill, out.width - fit.left - fit.width);
    }
  }
}

// Write the padding above and below the image.
void pad_above_and_below(const FittedImage& fitted, const Canvases& out, int64_t index) {
  const Fit& fit = fitted.fit;
  for (int32_t channel = 0; channel < out.channels; ++channel) {
    uint8_t* const canvas = plane(out, index, channel);
    std::memset(canvas, out.fill, fit.top * out.width);
    std::memset(canvas + (fit.top + fit.height) * out.width, out.fill,
                (out.height - fit.top - fit.height) * out.width);
  }
}

// The filter tables of a call, one for each pair of sides. References to tables stay valid.
class FilterTables {
 public:
  const FilterTable* find(int32_t input, int64_t output) {
    const auto sides = std::make_pair(input, static_cast<int32_t>(output));
    return &tables_.try_emplace(sides, sides.first, sides.second).first->second;
  }

 private:
  std::map<std::pair<int32_t, int32_t>, FilterTable> tables_;
};

}  // namespace

void lensbox_cpu_letterbox(const ImageView* images, int64_t image_count, const Canvases& out) {
  FilterTables tables;
  for (int64_t index = 0; index < image_count; ++index) {
    const ImageView& image = images[index];
    const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height);
    write_geometry(image, fit, out.geometry + 6 * index);
    const FittedImage fitted{image, fit, tables.find(image.width, fit.width),
                             tables.find(image.height, fit.height)};
    letterbox_rows(fitted, out, index);
    pad_above_and_below(fitted, out, index);
  }
}

}  // namespace lensbox
