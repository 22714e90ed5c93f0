#include "letterbox_image.h"

#include <cstring>

#include "../triangle_filter.h"
#include "filter_columns.h"
#include "filter_rows.h"
#include "image_rows.h"
#include "sliding_rows.h"

namespace lensbox {
namespace {

// Where pixels go: the first of `channels` planes of a canvas.
struct Planes {
  uint8_t* pixels;
  int32_t channels;
};

// Work of one pass over an image is in the order of its rows, so that each is read once and what lies between
// the passes is a few rows.
class RowsOfImage {
 public:
  RowsOfImage(const FittedImage& fitted, const Canvases& out, const Planes& planes)
      : fitted_(fitted),
        out_(out),
        planes_(planes),
        rows_(fitted.image, planes.channels),
        columns_(*fitted.across, rows_.pixel_bytes(), planes.channels) {}

  void run(int32_t begin, int32_t end) {
    if (rows_first(rows_.width(), rows_.height(), fitted_.fit)) {
      rows_then_columns(begin, end);
    } else {
      columns_then_rows(begin, end);
    }
  }

 private:
  // Where row y of the fitted image begins in a plane of the canvas.
  uint8_t* canvas_row(int32_t y, int32_t channel) const {
    const int64_t row = int64_t{channel} * out_.height + fitted_.fit.top + y;
    return planes_.pixels + row * out_.width + fitted_.fit.left;
  }

  void columns_then_rows(int32_t begin, int32_t end) {
    const FilterTable& down = *fitted_.down;
    constexpr int64_t kBand = ColumnFilter::kRows;
    SlidingRows between(down.first(begin), down.longest() + 2 * kBand, columns_.out_pitch());
    while (begin < end) {
      uint8_t* const band = between.below(kBand, down.first(begin));
      columns_.filter_band(rows_, between.end(), band);
      between.append(std::min<int64_t>(kBand, rows_.height() - between.end()));
      int32_t ready = begin;
      while (ready < end && down.end(ready) <= between.end()) {
        ++ready;
      }
      if (ready == begin) continue;
      for (int32_t channel = 0; channel < planes_.channels; ++channel) {
        filter_rows(down, begin, ready, between.row(down.first(begin)) + channel * fitted_.fit.width,
                    between.pitch(), fitted_.fit.width, canvas_row(begin, channel), out_.width);
      }
      begin = ready;
    }
  }

  // Of the fitted image's rows [begin, end), at most a band, to `out`.
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
      filter_rows(down, y, y + 1, converted.row(down.first(y)), converted.pitch(), converted.pitch(), out,
                  out_pitch);
      out += out_pitch;
    }
  }

  void rows_then_columns(int32_t begin, int32_t end) {
    constexpr int32_t kBand = ColumnFilter::kRows;
    const FilterTable& down = *fitted_.down;
    const int64_t row_bytes = int64_t{rows_.width()} * rows_.pixel_bytes();
    SlidingRows converted(down.first(begin), rows_.are_in_memory() ? 0 : 2 * int64_t{down.longest()},
                          row_bytes);
    const auto band = std::make_unique<uint8_t[]>(kBand * row_bytes);
    const auto filtered = std::make_unique_for_overwrite<uint8_t[]>(kBand * columns_.out_pitch());
    for (; begin < end; begin += kBand) {
      const int32_t count = std::min(kBand, end - begin);
      filter_image_rows(begin, begin + count, converted, band.get(), row_bytes);
      const int32_t bytes = rows_.pixel_bytes();
      const ImageRows combined({band.get(), 1, row_bytes, bytes, bytes == 1 ? 1 : 3, kBand, rows_.width()},
                               planes_.channels);
      columns_.filter_band(combined, 0, filtered.get());
      for (int32_t i = 0; i < count; ++i) {
        for (int32_t channel = 0; channel < planes_.channels; ++channel) {
          std::memcpy(canvas_row(begin + i, channel),
                      filtered.get() + i * columns_.out_pitch() + channel * fitted_.fit.width,
                      fitted_.fit.width);
        }
      }
    }
  }

  const FittedImage& fitted_;
  const Canvases& out_;
  Planes planes_;
  ImageRows rows_;
  ColumnFilter columns_;
};

uint8_t* plane(const Canvases& out, int64_t index, int32_t channel) {
  return out.pixels + (index * out.channels + channel) * out.height * out.width;
}

}  // namespace

void letterbox_rows(const FittedImage& fitted, const Canvases& out, int64_t index, int32_t begin,
                    int32_t end) {
  const Fit& fit = fitted.fit;
  const ImageView& image = fitted.image;
  if (image.channels == 1 || out.channels == 1 || ImageRows::holds_colours(image)) {
    const int32_t channels = image.channels == 1 ? 1 : out.channels;
    RowsOfImage(fitted, out, {plane(out, index, 0), channels}).run(begin, end);
  } else {
    for (int32_t channel = 0; channel < out.channels; ++channel) {
      FittedImage of_channel = fitted;
      of_channel.image.data += channel * image.channel_stride;
      of_channel.image.channels = 1;
      RowsOfImage(of_channel, out, {plane(out, index, channel), 1}).run(begin, end);
    }
  }
  for (int32_t channel = 0; channel < out.channels; ++channel) {
    for (int64_t y = fit.top + begin; y < fit.top + end; ++y) {
      uint8_t* const row = plane(out, index, channel) + y * out.width;
      if (channel > 0 && image.channels == 1) {
        std::memcpy(row, plane(out, index, 0) + y * out.width, out.width);
        continue;
      }
      std::memset(row, out.fill, fit.left);
      std::memset(row + fit.left + fit.width, out.fill, out.width - fit.left - fit.width);
    }
  }
}

void pad_above_and_below(const FittedImage& fitted, const Canvases& out, int64_t index) {
  const Fit& fit = fitted.fit;
  for (int32_t channel = 0; channel < out.channels; ++channel) {
    uint8_t* const canvas = plane(out, index, channel);
    std::memset(canvas, out.fill, fit.top * out.width);
    std::memset(canvas + (fit.top + fit.height) * out.width, out.fill,
                (out.height - fit.top - fit.height) * out.width);
  }
}

}  // namespace lensbox
