#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <lensbox/torch/tensors.h>

#include <array>
#include <limits>
#include <string>
#include <utility>

#include "detect/steps.h"
#include "file/errors.h"
#include "file/files.h"
#include "images/decoders.h"

namespace lensbox {
namespace {

constexpr uint64_t kMaxFileSize = std::numeric_limits<int>::max();

// Return a photograph whose tensor shares the memory of the pixels.
Photo wrapped(const DecodedPhoto& photo) {
  const Pixels& pixels = photo.pixels;
  const at::Tensor tensor = at::from_blob(
      pixels.data, {pixels.channels, pixels.height, pixels.width}, {1, pixels.stride, pixels.channels},
      [memory = pixels.memory](void*) {}, at::kByte);
  return {tensor, photo.width, photo.height, photo.window};
}

}  // namespace

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
    return wrapped(decode_photo({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, reading));
  });
}

Photo read_photo(std::span<const uint8_t> file, const Reading& reading) {
  return named("the image data", [&] { return wrapped(decode_photo(file, reading)); });
}

Photo to_photo(const ImageView& view, const Reading& reading) {
  return to_photo(view, reading, "image");
}

Photo to_photo(const ImageView& view, const Reading& reading, const std::string& name) {
  return named(name, [&] { return wrapped(read_frame(view, reading)); });
}

}  // namespace lensbox
