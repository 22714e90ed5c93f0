#pragma once

#include <lensbox/error.h>
#include <lensbox/image_view.h>

#include <chrono>
#include <cstdint>
#include <limits>

namespace lensbox {

// Segments before the first scan of a JPEG file, and chunks of a PNG file. A usual file of 16 MiB has a few
// thousand.
inline constexpr int64_t kMaxPieces = 100'000;

// Limits on the cost of decoding one image.
struct ImageLimits {
  int64_t max_pixels = kMaxImagePixels;  // at full size
  // The uncompressed pixels of a PNG file, which inflates at 5 to 6 ns a byte.
  int64_t max_png_bytes = std::numeric_limits<int64_t>::max();
  // When to give up, in seconds of the steady clock (CLOCK_MONOTONIC). A decode ends at most a second later.
  double deadline = std::numeric_limits<double>::infinity();

  bool is_over() const {
    if (deadline == std::numeric_limits<double>::infinity()) return false;
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count() >
           deadline;
  }
};

// The image has more pixels than the limits allow, or a longer side.
struct TooManyPixels : InputError {
  using InputError::InputError;
};

// The image was not decoded by the deadline.
struct DeadlineError : Error {
  DeadlineError() : Error(ErrorCode::kInternal, "the image was not decoded in time") {}
};

}  // namespace lensbox
