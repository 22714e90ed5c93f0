#pragma once

#include <lensbox/api.h>
#include <lensbox/detection.h>
#include <lensbox/reading.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// The newest version of the artifact format that this library reads.
inline constexpr int kFormatVersion = 2;

// Of format 1, whose preprocess takes one image, and which says nothing of canvas and reading.
inline constexpr int kSingleImageFormat = 1;

// How far results may lie from the expected ones: boxes and points in pixels, the rest absolute.
struct Tolerance {
  double boxes;
  double scores;
  double loss;
  std::vector<double> extras;  // in the order of Metadata::extras
};

// A small input that travels with the artifact, and what the detector made of it when it was written.
struct SelfTest {
  std::array<int64_t, 3> image_shape;  // C, H, W
  std::vector<uint8_t> pixels;         // C * H * W
  double score_threshold;
  double iou_threshold;
  std::vector<Detection> detections;  // at least one, best first; without their extras
  // In the order of Metadata::extras, the numbers of all detections, row by row.
  std::vector<std::vector<double>> extras;
  std::vector<Box> loss_predictions;  // at least one
  std::vector<Box> loss_targets;      // as many
  double loss;
  Tolerance cpu;
  Tolerance cuda;
};

// In what other precision than float32 a detector computes, and how far that moved its detections.
struct Precision {
  enum class Dtype {
    kTf32,  // which this library allows while the detector computes
    kFloat16,
    kBfloat16  // both in the code of the artifact
  };
  Dtype dtype;
  std::string device;  // where the changes were measured
  int64_t pictures;    // over so many of them
  int64_t detections;
  double median_box_change;  // pixels of the canvas
  double max_box_change;
  double max_score_change;
};

// An op library in the artifact's entry extra/ops/NAME, and what it was built for.
struct CarriedLibrary {
  std::string name;
  std::string sha256;  // 64 digits in small letters
  std::string torch_version;
  std::string platform;  // such as linux-x86_64
};

// For which machine, and by which torch, a package of machine code was compiled.
struct Compiled {
  std::string device;  // cpu or cuda
  std::string torch_version;
  std::string platform;                   // such as linux-x86_64
  std::vector<std::string> cpu_features;  // the processor's instruction sets, in Linux's names
  std::string gpu_architecture;           // such as sm_90; empty for a CPU
};

// What an artifact's file is.
enum class FileKind {
  kTorchScript,
  kPackage,  // of AOTInductor: detect as machine code
  kOnnx      // detect in operators of ONNX
};

// What an artifact says about itself: the extra file lensbox.json inside the archive, or the property of that
// name of an ONNX model.
struct Metadata {
  FileKind file_kind = FileKind::kTorchScript;
  nlohmann::ordered_json document;  // all of it, in the order of the file
  int64_t format_version;
  std::string torch_version;     // of the torch that wrote the artifact
  std::vector<std::string> ops;  // schemas of the custom ops that its code calls
  std::vector<std::string> methods;
  ReadOptions reading;     // how photographs are read for it: the default
  double score_threshold;  // the defaults of detect
  double iou_threshold;
  SelfTest self_test;
  std::vector<std::string> classes;    // names by label; empty where there is one kind and no labels
  std::vector<Extra> extras;           // further outputs for each detection
  std::optional<Precision> precision;  // none: float32
  std::vector<CarriedLibrary> libraries;
  std::optional<Compiled> compiled;  // of a package of machine code alone
};

// Reads the text of lensbox.json strictly (see strict_json.h): every field that this library knows must be
// there and sound, others are ignored. `artifact` is only named in errors. Throws ArtifactError, also for a
// newer format.
LENSBOX_API Metadata parse_metadata(std::string_view text, const std::filesystem::path& artifact);

}  // namespace lensbox
