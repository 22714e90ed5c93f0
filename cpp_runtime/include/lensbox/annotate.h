#pragma once

#include <lensbox/detection.h>
#include <lensbox/image_io.h>

#include <span>

namespace lensbox {

// A copy of the image in colour (RGB, or RGBA if it was) with each box drawn, and its score in percent in a
// tag at the box's upper left corner. Lines and digits grow with the image. The best detection is drawn last,
// on top.
Image annotate(const Image& image, std::span<const Detection> detections);

}  // namespace lensbox
