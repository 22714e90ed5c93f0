#pragma once

#include <lensbox/detector.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backends/backend.h"

// The parts of Detector, each in a source file of its own.
namespace lensbox {

struct Detector::Parts {
  std::filesystem::path artifact;  // for errors
  Metadata metadata;
  std::shared_ptr<Backend> backend;
};

// Return the thresholds of score and IoU. Throws InputError.
std::pair<double, double> checked(const Thresholds& thresholds, const Metadata& metadata);

// Read a JPEG or PNG file. Throws InputError, with the file's name.
DecodedPhoto decode_file(const std::filesystem::path& path, const Reading& reading);

// Detect in photographs: for each, best first, in its own pixels.
std::vector<std::vector<Detection>> detect_sources(const Detector::Parts& parts,
                                                   const std::vector<Source>& photos,
                                                   const Thresholds& thresholds);

// --- tiles.cpp ---

// Throw InputError for a specification out of its range.
void check_tiles(const TileSpec& spec);

// Detect in one photograph, at full size, and in its tiles. `cut` returns the part of the photograph in a
// window x1, y1, x2, y2. Throws InputError.
std::vector<Detection> detect_in_tiles(const Detector::Parts& parts, const DecodedPhoto& photo,
                                       const std::function<Source(const int64_t*)>& cut,
                                       const TileSpec& tiles, const Thresholds& thresholds);

// The same for pixels in the CPU's memory.
std::vector<Detection> detect_in_tiles(const Detector::Parts& parts, const DecodedPhoto& photo,
                                       const TileSpec& tiles, const Thresholds& thresholds);

}  // namespace lensbox
