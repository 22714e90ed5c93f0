#include "new_image.h"

#include <lensbox/error.h>

namespace lensbox {

void check_size(int64_t width, int64_t height) {
  // Divided, not multiplied: a PNG header may tell of 2^31 - 1 pixels each way.
  if (width <= kMaxImagePixels && height <= kMaxImagePixels / width) return;
  throw InputError("at most " + std::to_string(kMaxImagePixels) + " pixels are accepted, got " +
                   std::to_string(width) + " x " + std::to_string(height));
}

Image new_image(int64_t width, int64_t height, int channels) {
  check_size(width, height);
  return {static_cast<int>(width), static_cast<int>(height), channels,
          std::vector<uint8_t>(static_cast<size_t>(width * height * channels))};
}

}  // namespace lensbox
