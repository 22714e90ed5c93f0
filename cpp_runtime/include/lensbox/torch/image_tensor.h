#pragma once

#include <ATen/core/Tensor.h>
#include <lensbox/api.h>
#include <lensbox/image_io.h>

namespace lensbox {

// uint8 [channels, height, width]: the image's own memory, so its strides are those of [H, W, C].
LENSBOX_API at::Tensor to_tensor(Image image);

}  // namespace lensbox
