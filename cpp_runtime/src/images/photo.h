#pragma once

#include <lensbox/torch/tensors.h>

#include <string>

namespace lensbox {

// What to_photo does; messages begin with `name`.
Photo read_frame(const ImageView& view, const Reading& reading, const std::string& name);

}  // namespace lensbox
