// The arguments of `fit` as words, for the op and the C++ runtime.
#pragma once

#include <string>
#include <string_view>

#include "fit_math.h"

namespace lensbox {

constexpr const char* kFit = "lensbox::fit";

template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};

constexpr Word<FitMode> kFitModes[] = {{"letterbox", FitMode::kLetterbox},
                                       {"stretch", FitMode::kStretch},
                                       {"crop", FitMode::kCrop},
                                       {"ultralytics", FitMode::kUltralytics},
                                       {"ultralytics_shrink", FitMode::kUltralyticsShrink}};
constexpr Word<Filter> kFilters[] = {{"nearest", Filter::kNearest},           {"box", Filter::kBox},
                                     {"bilinear", Filter::kBilinear},         {"hamming", Filter::kHamming},
                                     {"bicubic", Filter::kBicubic},           {"lanczos", Filter::kLanczos},
                                     {"opencv_linear", Filter::kOpencvLinear}};
constexpr Word<int32_t> kChannelsOfOrder[] = {{"gray", 1}, {"rgb", 3}, {"bgr", 3}};

// Return why an image is too large on the canvas, which only a crop makes large, or "".
inline std::string fit_fault(const kernels::ImageView& image, const Canvases& out) {
  if (out.mode != FitMode::kCrop) return "";
  const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height, out.mode);
  if (fit.width <= kLongestSide && fit.height <= kLongestSide) return "";
  const auto size = [](int64_t width, int64_t height) {
    return std::to_string(width) + " x " + std::to_string(height);
  };
  return std::string(kFit) + ": an image of " + size(image.width, image.height) +
         " pixels, scaled to cover the canvas, must have sides of at most " + std::to_string(kLongestSide) +
         " pixels, got " + size(fit.width, fit.height);
}

}  // namespace lensbox
