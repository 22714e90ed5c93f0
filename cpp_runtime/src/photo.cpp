#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <lensbox/torch/image_tensor.h>
#include <lensbox/torch/photo.h>

#include <utility>

#include "image_file.h"

namespace lensbox {
namespace {

Photo to_photo(UprightImage upright) {
  return {.pixels = to_tensor(std::move(upright.image)),
          .width = upright.width,
          .height = upright.height,
          .window = upright.window};
}

}  // namespace

Photo Photo::of(at::Tensor pixels) {
  if (pixels.dim() != 3) {
    throw InputError("an image must have the shape [C, H, W], got " + c10::str(pixels.sizes()));
  }
  const int64_t width = pixels.size(2);
  const int64_t height = pixels.size(1);
  const std::array whole{0.0F, 0.0F, static_cast<float>(width), static_cast<float>(height)};
  return {std::move(pixels), width, height, whole};
}

Photo read_photo(const std::filesystem::path& path, const ReadOptions& options) {
  return to_photo(read_image_file(path, options));
}

Photo read_photo(std::span<const uint8_t> file, const ReadOptions& options) {
  try {
    return to_photo(decode_image_file(file, options));
  } catch (const InputError& error) {
    throw InputError(std::string("the image data: ") + error.what());
  }
}

}  // namespace lensbox
