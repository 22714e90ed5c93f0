#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "file/errors.h"
#include "file/files.h"
#include "fit.h"  // of the op library
#include "images/decoders.h"

namespace lensbox {
namespace {

constexpr uint64_t kMaxFileSize = std::numeric_limits<int>::max();
// Throws InputError with the reason alone.
Photo decode(std::span<const uint8_t> file, const Reading& reading) {
  if (file.empty()) throw InputError("the file is empty");
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  if (bytes.starts_with("\xFF\xD8\xFF")) {
    return turn_upright(decode_jpeg(file, reading), reading.orientation);
  }
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return turn_upright(decode_png(file), reading.orientation);
  throw InputError("neither a JPEG nor a PNG file");
}

// Throws InputError if `fit` would refuse the sides.
void check_sides(int64_t width, int64_t height) {
  if (width <= kLongestSide && height <= kLongestSide) return;
  throw InputError("an image must have sides of at most " + std::to_string(kLongestSide) + " pixels, got " +
                   std::to_string(width) + " x " + std::to_string(height));
}

}  // namespace

void check_size(int64_t width, int64_t height) {
  check_sides(width, height);
  // Divide, because a product could overflow: a PNG header may claim 2^31 - 1 pixels each way.
  if (width <= kMaxImagePixels && height <= kMaxImagePixels / width) return;
  throw InputError("at most " + std::to_string(kMaxImagePixels) + " pixels are accepted, got " +
                   std::to_string(width) + " x " + std::to_string(height));
}

at::Tensor new_pixels(int64_t width, int64_t height, int64_t channels) {
  check_size(width, height);
  return at::empty({height, width, channels}, at::kByte);
}

Photo Photo::of(at::Tensor pixels) {
  if (pixels.dim() != 3) {
    throw InputError("an image must have the shape [C, H, W], got " + c10::str(pixels.sizes()));
  }
  const int64_t width = pixels.size(2);
  const int64_t height = pixels.size(1);
  check_sides(width, height);
  const std::array whole{0.0F, 0.0F, static_cast<float>(width), static_cast<float>(height)};
  return {std::move(pixels), width, height, whole};
}

Photo read_photo(const std::filesystem::path& path, const Reading& reading) {
  return named("image " + path.string(), [&] {
    const std::string bytes = read_file(path, kMaxFileSize);
    return decode({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, reading);
  });
}

Photo read_photo(std::span<const uint8_t> file, const Reading& reading) {
  return named("the image data", [&] { return decode(file, reading); });
}

Photo to_photo(const ImageView& view, const Reading& reading) {
  return read_frame(view, reading, "image");
}

}  // namespace lensbox
