#pragma once

#include <lensbox/image_io.h>
#include <lensbox/image_view.h>

#include <string>

namespace lensbox {

// Throws InputError, which begins with `name`, unless the view can be read: data that are not null, at least
// one and at most kMaxImagePixels pixels, strides that hold a row.
void check_view(const ImageView& view, const std::string& name);

// Copies of views that have passed check_view, of the format that the name says.
Image bgr8_to_rgb(const ImageView& view);
Image nv12_to_rgb(const ImageView& view);
Image nv12_to_gray(const ImageView& view);

}  // namespace lensbox
