#pragma once

#include <cstdint>
#include <optional>

namespace lensbox {

// What the artifact's detector looks at: images of one size.
struct Canvas {
  int64_t height;
  int64_t width;
  int64_t channels;  // 1 gray, 3 RGB
  int64_t fill;      // 0..255, around the photograph
};

// Whether a photograph is turned as its EXIF orientation says, or left as it lies in the file.
enum class Orientation { kExif, kStored };

struct Reading {
  Orientation orientation = Orientation::kExif;
  // A JPEG file is decoded at the smallest of 1/8, 1/4, 1/2 and 1 that leaves this many times as many pixels
  // a side as the canvas needs. 0: always in full.
  int64_t jpeg_oversampling = 2;
};

// How a file becomes pixels. docs/artifact.md, "Reading images", has the rule, which all runtimes keep.
struct ReadOptions {
  std::optional<Canvas> canvas;  // not known: the photograph is decoded in full, in its own colors
  Reading reading;
};

}  // namespace lensbox
