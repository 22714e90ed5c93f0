#pragma once

#include <lensbox/detection.h>
#include <lensbox/reading.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// The newest version of the artifact format that this library reads.
inline constexpr int kFormatVersion = 2;

// Of format 1, whose preprocess takes one image, and which says nothing of canvas and reading.
inline constexpr int kSingleImageFormat = 1;

// How far results may lie from the expected ones: boxes in pixels, the rest absolute.
struct Tolerance {
  double boxes;
  double scores;
  double loss;
};

// A small input that travels with the artifact, and what the detector made of it when it was written.
struct SelfTest {
  std::array<int64_t, 3> image_shape;  // C, H, W
  std::vector<uint8_t> pixels;         // C * H * W
  double score_threshold;
  double iou_threshold;
  std::vector<Detection> detections;  // at least one, best first
  std::vector<Box> loss_predictions;  // at least one
  std::vector<Box> loss_targets;      // as many
  double loss;
  Tolerance cpu;
  Tolerance cuda;
};

// What an artifact says about itself: the extra file lensbox.json inside the TorchScript archive.
struct Metadata {
  nlohmann::ordered_json document;  // all of it, in the order of the file
  int64_t format_version;
  std::string torch_version;     // of the torch that wrote the artifact
  std::vector<std::string> ops;  // schemas of the custom ops that its code calls
  std::vector<std::string> methods;
  ReadOptions reading;     // how photographs are read for it: the default
  double score_threshold;  // the defaults of detect
  double iou_threshold;
  SelfTest self_test;
};

// Reads the text of lensbox.json strictly (see strict_json.h): every field that this library knows must be
// there and sound, others are ignored. `artifact` is only named in errors. Throws ArtifactError, also for a
// newer format.
Metadata parse_metadata(std::string_view text, const std::filesystem::path& artifact);

}  // namespace lensbox
