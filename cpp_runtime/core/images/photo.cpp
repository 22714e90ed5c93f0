#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "fit.h"  // of the op library
#include "images/decoders.h"

namespace lensbox {

DecodedPhoto decode_photo(std::span<const uint8_t> file, const Reading& reading) {
  if (file.empty()) throw InputError("the file is empty");
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  if (bytes.starts_with("\xFF\xD8\xFF")) {
    return turn_upright(decode_jpeg(file, reading), reading.orientation);
  }
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return turn_upright(decode_png(file), reading.orientation);
  throw InputError("neither a JPEG nor a PNG file");
}

void check_sides(int64_t width, int64_t height) {
  if (width <= kLongestSide && height <= kLongestSide) return;
  throw InputError("an image must have sides of at most " + std::to_string(kLongestSide) + " pixels, got " +
                   std::to_string(width) + " x " + std::to_string(height));
}

void check_size(int64_t width, int64_t height) {
  check_sides(width, height);
  // Divide, because a product could overflow: a PNG header may claim 2^31 - 1 pixels each way.
  if (width <= kMaxImagePixels && height <= kMaxImagePixels / width) return;
  throw InputError("at most " + std::to_string(kMaxImagePixels) + " pixels are accepted, got " +
                   std::to_string(width) + " x " + std::to_string(height));
}

Pixels new_pixels(int64_t width, int64_t height, int64_t channels) {
  check_size(width, height);
  const int64_t stride = width * channels;
  // Not make_shared, which would write zeros.
  std::shared_ptr<uint8_t[]> memory(new uint8_t[static_cast<size_t>(height * stride)]);
  uint8_t* const data = memory.get();
  return {std::move(memory), data, width, height, channels, stride};
}

DecodedPhoto whole_photo(Pixels pixels) {
  const int64_t width = pixels.width;
  const int64_t height = pixels.height;
  return {
      std::move(pixels), width, height, {0.0F, 0.0F, static_cast<float>(width), static_cast<float>(height)}};
}

}  // namespace lensbox
