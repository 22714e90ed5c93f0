#include <ATen/ATen.h>
#include <lensbox/torch/image_tensor.h>

#include <array>
#include <memory>
#include <utility>

#include "new_image.h"

namespace lensbox {

at::Tensor to_tensor(Image image) {
  check_image(image);
  const std::array<int64_t, 3> shape{image.height, image.width, image.channels};
  auto pixels = std::make_shared<std::vector<uint8_t>>(std::move(image.pixels));
  uint8_t* const data = pixels->data();
  return at::from_blob(data, shape, [pixels = std::move(pixels)](void*) {}, at::kByte).permute({2, 0, 1});
}

}  // namespace lensbox
