#pragma once

#include <filesystem>

// Writes an artifact of a detector that needs no op library. Its canvas is RGB, of 8 x 8 pixels, each of the
// image's mean color. In an image it finds one detection: the box (0, 0, mean red, mean green), of which 255
// is as wide and high as the image, with the score mean blue / 255. It finds nothing if that is not above the
// threshold. The loss is the mean absolute difference; it fails for boxes that begin with -1.
void save_small_artifact(const std::filesystem::path& path);
