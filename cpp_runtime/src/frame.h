#pragma once

#include <lensbox/image_view.h>
#include <lensbox/torch/photo.h>

#include <string>

namespace lensbox {

// What to_photo does; errors begin with `name`.
Photo read_frame(const ImageView& view, const ReadOptions& options, const std::string& name);

}  // namespace lensbox
