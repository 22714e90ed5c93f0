#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <lensbox/torch/tensors.h>

#include <array>
#include <string>
#include <utility>

#include "detect/steps.h"
#include "file/errors.h"
#include "images/decoders.h"
#include "tensors/tensor_steps.h"

namespace lensbox {
Photo to_photo(const DecodedPhoto& photo) {
  const Pixels& pixels = photo.pixels;
  const at::Tensor tensor = at::from_blob(
      pixels.data, {pixels.channels, pixels.height, pixels.width}, {1, pixels.stride, pixels.channels},
      [memory = pixels.memory](void*) {}, at::kByte);
  return {tensor, photo.width, photo.height, photo.window};
}

DecodedPhoto decoded(const Photo& photo, size_t index) {
  check_photo(photo, index);
  check_sides(photo.pixels.size(2), photo.pixels.size(1));
  DecodedPhoto copy{{}, photo.width, photo.height, photo.window};
  copy.pixels = new_pixels(photo.pixels.size(2), photo.pixels.size(1), photo.pixels.size(0));
  to_photo(copy).pixels.copy_(photo.pixels);
  return copy;
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
  return to_photo(decode_file(path, reading));
}

Photo read_photo(std::span<const uint8_t> file, const Reading& reading) {
  return to_photo(named("the image data", [&] { return decode_photo(file, reading); }));
}

Photo to_photo(const ImageView& view, const Reading& reading) {
  return to_photo(named("image", [&] { return read_frame(view, reading); }));
}

}  // namespace lensbox
