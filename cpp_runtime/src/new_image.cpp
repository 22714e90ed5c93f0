#include "new_image.h"

#include <lensbox/error.h>

#include <string>

namespace lensbox {

void check_size(int64_t width, int64_t height) {
  // Divided, not multiplied: a PNG header may tell of 2^31 - 1 pixels each way.
  if (width <= kMaxImagePixels && height <= kMaxImagePixels / width) return;
  throw InputError("at most " + std::to_string(kMaxImagePixels) + " pixels are accepted, got " +
                   std::to_string(width) + " x " + std::to_string(height));
}

void check_image(const Image& image) {
  const std::string sides = std::to_string(image.width) + " x " + std::to_string(image.height);
  if (image.width < 1 || image.height < 1) {
    throw InputError("image: width and height must be at least 1, got " + sides);
  }
  if (image.channels < 1 || image.channels > 4) {
    throw InputError("image: channels must be from 1 to 4, got " + std::to_string(image.channels));
  }
  const uint64_t bytes = uint64_t{1} * image.width * image.height * image.channels;  // below 2^64
  if (image.pixels.size() == bytes) return;
  throw InputError("image: pixels must be " + sides + " x " + std::to_string(image.channels) + " = " +
                   std::to_string(bytes) + " bytes, got " + std::to_string(image.pixels.size()));
}

Image new_image(int64_t width, int64_t height, int channels) {
  check_size(width, height);
  return {static_cast<int>(width), static_cast<int>(height), channels,
          std::vector<uint8_t>(static_cast<size_t>(width * height * channels))};
}

}  // namespace lensbox
