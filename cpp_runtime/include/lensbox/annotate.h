#pragma once

#include <lensbox/api.h>
#include <lensbox/detection.h>
#include <lensbox/image_io.h>

#include <span>
#include <string>

namespace lensbox {

// A copy of the image in colour (RGB, or RGBA if it was) with each box drawn, and its score in percent in a
// tag at the box's upper left corner. classes, extras: those of the artifact; with classes, the tag also has
// the name, and each class a colour of its own (twelve, then again from the first); characters outside of
// ASCII are empty frames. Points are dots. Lines and letters grow with the image. The best detection is drawn
// last, on top.
LENSBOX_API Image annotate(const Image& image, std::span<const Detection> detections,
                           std::span<const std::string> classes = {}, std::span<const Extra> extras = {});

}  // namespace lensbox
