// The arithmetic of `fit`, shared by the CPU and CUDA kernels: gray levels as Pillow's convert("L") makes
// them, and one pass of its resize(), with a filter that is as wide as the reduction; and OpenCV's
// resize(INTER_LINEAR), which reads four pixels for each output.
//
// Weights are computed in float64, in Pillow's order of operations, and then fixed to 22 bits after the
// point. All later steps use integers, whose sums do not depend on the order, so every kernel gives the same
// bytes. Compilers must not fuse a * b + c here (-ffp-contract=off, --fmad=false).
//
// The structs at the end are the arguments of `fit` for its kernels: raw memory, no ATen.
#pragma once

#include <cstdint>

#include "fit.h"
#include "host_device.h"

namespace lensbox {

constexpr int kWeightBits = 22;
constexpr int32_t kHalfWeight = int32_t{1} << (kWeightBits - 1);

// ITU-R BT.601 luma in 16 bits, rounded.
LENSBOX_HOST_DEVICE uint8_t luma(uint32_t red, uint32_t green, uint32_t blue) {
  return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

// Pillow's filters, and OpenCV's INTER_LINEAR. kNearest has no weights: see NearestPixels. kOpencvLinear: see
// LinearTaps.
enum class Filter : int32_t { kNearest, kBox, kBilinear, kHamming, kBicubic, kLanczos, kOpencvLinear };

// Return half the width of a filter that enlarges, in input pixels.
LENSBOX_HOST_DEVICE double filter_support(Filter filter) {
  switch (filter) {
    case Filter::kBicubic:
      return 2.0;
    case Filter::kLanczos:
      return 3.0;
    case Filter::kBilinear:
    case Filter::kHamming:
      return 1.0;
    default:
      return 0.5;
  }
}

// Return the sine of x for `quarters` = 0 and the cosine for 1; x is from 0 to 3 pi. The functions of C
// libraries and of CUDA differ in the last bit. This one is within a unit of it everywhere: polynomials of
// fdlibm up to pi / 4, and pi / 2 as a sum of two numbers.
LENSBOX_HOST_DEVICE double sine(double x, int32_t quarters) {
  const int32_t turns = static_cast<int32_t>(x * 6.36619772367581382433e-01 + 0.5);
  const double y = (x - turns * 1.57079632673412561417e+00) - turns * 6.07710050650619224932e-11;
  const double z = y * y;
  const int32_t quadrant = (turns + quarters) & 3;
  double value;
  if ((quadrant & 1) == 0) {
    const double tail = 8.33333333332248946124e-03 +
                        z * (-1.98412698298579493134e-04 +
                             z * (2.75573137070700676789e-06 +
                                  z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
    value = y + z * y * (-1.66666666666666324348e-01 + z * tail);
  } else {
    const double tail =
        z * (4.16666666666666019037e-02 +
             z * (-1.38888888888741095749e-03 +
                  z * (2.48015872894767294178e-05 +
                       z * (-2.75573143513906633035e-07 +
                            z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
    const double half = 0.5 * z, rest = 1.0 - half;
    value = rest + (((1.0 - rest) - half) + z * tail);
  }
  return quadrant < 2 ? value : -value;
}

constexpr double kPi = 3.14159265358979323846;

// Return sin(pi x) / (pi x), for x from 0 to 3.
LENSBOX_HOST_DEVICE double sinc(double x) {
  if (x == 0.0) return 1.0;
  const double angle = x * kPi;
  return sine(angle, 0) / angle;
}

// Return the height of a filter at a distance from its center.
LENSBOX_HOST_DEVICE double filter_curve(Filter filter, double distance) {
  const double x = distance < 0.0 ? -distance : distance;
  switch (filter) {
    case Filter::kBilinear:
      return x < 1.0 ? 1.0 - x : 0.0;
    case Filter::kBicubic:
      if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1;
      return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0.0;
    case Filter::kLanczos:
      return x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
    case Filter::kHamming: {
      if (x == 0.0) return 1.0;
      if (x >= 1.0) return 0.0;
      const double angle = x * kPi;
      return sine(angle, 0) / angle * (0.54f + 0.46f * sine(angle, 1));  // Pillow's constants are floats
    }
    default:  // a box with one of its two edges
      return distance > -0.5 && distance <= 0.5 ? 1.0 : 0.0;
  }
}

// The input pixels [first, first + count) that contribute to one output pixel.
struct FilterWindow {
  int32_t first, count;
  double center;  // of the output pixel, in input pixels
  double shrink;  // 1 / the filter's scale
};

// Return the window of the output pixel `index` if `input` pixels become `output`.
LENSBOX_HOST_DEVICE FilterWindow filter_window(Filter filter, int32_t index, int32_t input, int32_t output) {
  const double scale = static_cast<double>(input) / output;
  const double wide = scale < 1.0 ? 1.0 : scale;
  const double support = filter_support(filter) * wide;
  const double center = (index + 0.5) * scale;
  int32_t first = static_cast<int32_t>(center - support + 0.5);
  if (first < 0) first = 0;
  int32_t end = static_cast<int32_t>(center + support + 0.5);
  if (end > input) end = input;
  return {first, end - first, center, 1.0 / wide};
}

// Return the height of the filter at the window's pixel i, not yet normalised.
LENSBOX_HOST_DEVICE double filter_height(Filter filter, const FilterWindow& window, int32_t i) {
  return filter_curve(filter, (i + window.first - window.center + 0.5) * window.shrink);
}

// Return the sum of the heights of a window, added in the order of its pixels.
LENSBOX_HOST_DEVICE double filter_area(Filter filter, const FilterWindow& window) {
  double area = 0.0;
  for (int32_t i = 0; i < window.count; ++i) {
    area += filter_height(filter, window, i);
  }
  return area;
}

// Return the weight of a pixel; the weights of a window add up to about 2^22. A weight is less than 2^23 on
// either side of 0.
LENSBOX_HOST_DEVICE int32_t fixed_weight(double height, double area) {
  const double weight = area != 0.0 ? height / area : height;
  return static_cast<int32_t>((weight < 0.0 ? -0.5 : 0.5) + weight * (1 << kWeightBits));
}

// Return whether the rows are combined before the columns. Values are rounded to bytes between the passes, so
// the order matters; this is the order of Pillow 13. (Earlier versions always combine columns first.)
LENSBOX_HOST_DEVICE bool rows_first(int64_t width, int64_t height, const Fit& fit) {
  const int64_t fewer_rows = height - fit.height;
  return fewer_rows > 0 && fewer_rows > 2 * (width - fit.width);
}

// Return the byte for a sum of weight * pixel that began with kHalfWeight.
LENSBOX_HOST_DEVICE uint8_t filtered_byte(int32_t sum) {
  const int32_t byte = sum >> kWeightBits;
  return static_cast<uint8_t>(byte < 0 ? 0 : byte > 255 ? 255 : byte);
}

namespace kernels {

// uint8 [channels, height, width], strides in bytes.
struct ImageView {
  const uint8_t* data;
  int64_t channel_stride, row_stride, column_stride;
  int32_t channels, height, width;
};

}  // namespace kernels

// Walks the pixels that kNearest takes, in order: Pillow adds the scale again and again, so the roundings of
// all earlier outputs count.
class NearestPixels {
 public:
  LENSBOX_HOST_DEVICE NearestPixels(int32_t input, int32_t output)
      : last_(input - 1), scale_(static_cast<double>(input) / output), at_(scale_ * 0.5) {}

  LENSBOX_HOST_DEVICE int32_t next() {
    const int32_t pixel = static_cast<int32_t>(at_);
    at_ += scale_;
    return pixel < last_ ? pixel : last_;
  }

 private:
  int32_t last_;
  double scale_, at_;
};

// The two input pixels that OpenCV's INTER_LINEAR mixes for one output along an axis, with weights that add
// up to 2^11, or 1 more or less.
struct LinearTaps {
  int32_t first, second;
  int32_t first_weight, second_weight;
};

// Return the taps of the output pixel `index` if `input` pixels become `whole`. Outside of the image, OpenCV
// takes the last column alone, but mixes the last row with itself, which rounds differently.
LENSBOX_HOST_DEVICE LinearTaps linear_taps(int32_t index, int32_t input, int32_t whole, bool is_columns) {
  const double scale = 1.0 / (static_cast<double>(whole) / input);
  const float at = static_cast<float>((index + 0.5) * scale - 0.5), below = std::floor(at);
  const int32_t first = static_cast<int32_t>(below), last = input - 1;
  const float part = is_columns && (first < 0 || first >= last) ? 0.0f : at - below;
  const auto inside = [last](int32_t pixel) { return pixel < 0 ? 0 : pixel > last ? last : pixel; };
  const auto weight = [](float share) { return static_cast<int32_t>(std::rint(share * 2048.0f)); };
  return {inside(first), inside(first + 1), weight(1.0f - part), weight(part)};
}

// Return the mix of two pixels of a row, with 7 bits after the point.
LENSBOX_HOST_DEVICE int32_t linear_mix(const LinearTaps& columns, int32_t first, int32_t second) {
  return (columns.first_weight * first + columns.second_weight * second) >> 4;
}

// Return the byte of two such mixes.
LENSBOX_HOST_DEVICE uint8_t linear_byte(int32_t first_weight, int32_t second_weight, int32_t first,
                                        int32_t second) {
  const int32_t sum = ((first_weight * first) >> 16) + ((second_weight * second) >> 16);
  return static_cast<uint8_t>((sum + 2) >> 2);
}

// uint8 [B, channels, height, width] and float32 [B, 6], both contiguous, and how images become canvases.
struct Canvases {
  uint8_t* pixels;
  float* geometry;
  int32_t channels, height, width;
  uint8_t fill;
  bool is_bgr;  // of three channels: blue is the first
  FitMode mode;
  Filter filter;

  // Return the plane that shows an image's channel, of 0 red, 1 green, 2 blue.
  LENSBOX_HOST_DEVICE int32_t plane_of(int32_t channel) const {
    return is_bgr ? channels - 1 - channel : channel;
  }
};

// The numbers that take the place of the levels 0 to 255 of each channel. Numbers of 16 bits are float16 or
// bfloat16.
struct LevelTable {
  int32_t channels;
  bool is_float32;
  union {
    float float32[3 * 256];
    uint16_t bits16[3 * 256];
  };
};

// Return the number for a level; all steps are rounded to float32.
LENSBOX_HOST_DEVICE float normalised_level(int32_t level, float mean, float deviation) {
  return (static_cast<float>(level) / 255.0f - mean) / deviation;
}

// scale_x, scale_y, offset_x, offset_y, width, height: canvas = image * scale + offset.
LENSBOX_HOST_DEVICE void write_geometry(const kernels::ImageView& image, const Fit& fit, float* geometry) {
  geometry[0] = static_cast<float>(static_cast<double>(fit.width) / image.width);
  geometry[1] = static_cast<float>(static_cast<double>(fit.height) / image.height);
  geometry[2] = static_cast<float>(fit.left);
  geometry[3] = static_cast<float>(fit.top);
  geometry[4] = static_cast<float>(image.width);
  geometry[5] = static_cast<float>(image.height);
}

}  // namespace lensbox
