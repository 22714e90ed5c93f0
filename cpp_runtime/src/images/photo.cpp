#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "file/files.h"
#include "images/decoders.h"

namespace lensbox {
namespace {

constexpr uint64_t kMaxFileSize = std::numeric_limits<int>::max();
constexpr std::array<uint8_t, 3> kJpegSignature{0xFF, 0xD8, 0xFF};
constexpr std::array<uint8_t, 8> kPngSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

bool begins_with(std::span<const uint8_t> file, std::span<const uint8_t> signature) {
  return file.size() >= signature.size() && std::ranges::equal(file.first(signature.size()), signature);
}

// Throws InputError with the reason alone.
Photo decode(std::span<const uint8_t> file, const Reading& reading) {
  if (file.empty()) throw InputError("the file is empty");
  if (begins_with(file, kJpegSignature)) {
    return turn_upright(decode_jpeg(file, reading), reading.orientation);
  }
  if (begins_with(file, kPngSignature)) return turn_upright(decode_png(file), reading.orientation);
  throw InputError("neither a JPEG nor a PNG file");
}

}  // namespace

void check_size(int64_t width, int64_t height) {
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
  const std::array whole{0.0F, 0.0F, static_cast<float>(width), static_cast<float>(height)};
  return {std::move(pixels), width, height, whole};
}

Photo read_photo(const std::filesystem::path& path, const Reading& reading) {
  try {
    const std::string bytes = read_file(path, kMaxFileSize);
    return decode({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, reading);
  } catch (const InputError& error) {
    throw InputError("image " + path.string() + ": " + error.what());
  }
}

Photo read_photo(std::span<const uint8_t> file, const Reading& reading) {
  try {
    return decode(file, reading);
  } catch (const InputError& error) {
    throw InputError(std::string("the image data: ") + error.what());
  }
}

Photo to_photo(const ImageView& view, const Reading& reading) {
  return read_frame(view, reading, "image");
}

}  // namespace lensbox
