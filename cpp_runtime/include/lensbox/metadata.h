#pragma once

#include <lensbox/detection.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lensbox {

// The version of the artifact format that this library reads.
inline constexpr int kFormatVersion = 3;

// The images that the detector computes with: all of one size.
struct Canvas {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;  // 1 gray, 3 colours
  int64_t fill = 0;      // 0..255, around the photograph
  std::string fit = "letterbox";
  std::string filter = "bilinear";
  std::string order = "rgb";  // of three channels
  // The artifact makes numbers of levels by these, one for each channel; empty: it computes with levels.
  std::vector<double> mean = {}, std = {};
};

// Turn a photograph as its EXIF orientation says, or leave it as the file stores it.
enum class Orientation { kExif, kStored };

// The rule for reading image files, the same in all runtimes: docs/artifact.md, "Reading images".
struct Reading {
  Canvas canvas = {};
  Orientation orientation = Orientation::kExif;
  // A JPEG file is decoded at the smallest scale of 1/8, 1/4, 1/2 and 1 at which each side has at least this
  // many times the pixels that the canvas needs. 0: always at full size.
  int64_t jpeg_oversampling = 2;
};

// The largest differences that pass a self-test: boxes and points in pixels, the rest absolute.
struct Tolerance {
  double boxes = 0;
  double scores = 0;
  double loss = 0;
  std::vector<double> extras = {};  // in the order of Metadata::extras
};

// A small input stored in the artifact, and the detector's results for it when it was exported.
struct SelfTest {
  std::array<int64_t, 3> image_shape = {};  // C, H, W
  std::vector<uint8_t> pixels;              // C * H * W
  double score_threshold = 0;
  double iou_threshold = 0;
  std::vector<Detection> detections;  // at least one, best first; without their extras
  // In the order of Metadata::extras, the numbers of all detections, row by row.
  std::vector<std::vector<double>> extras;
  std::vector<Box> loss_predictions;  // at least one
  std::vector<Box> loss_targets;      // as many as predictions
  double loss = 0;
  Tolerance cpu;
  Tolerance cuda;
};

// The precision in which the detector computes. For TF32 this library sets a switch of the process; float16
// and bfloat16 are in the code of the artifact.
enum class Precision { kFloat32, kTf32, kFloat16, kBfloat16 };

// The machine and torch for which a package of machine code was compiled.
struct Compiled {
  std::string device;  // cpu or cuda
  std::string torch_version;
  std::string platform;                   // such as linux-x86_64
  std::vector<std::string> cpu_features;  // the processor's instruction sets, in Linux's names
  std::string gpu_architecture;           // such as sm_90; empty for a CPU
};

enum class FileKind {
  kTorchScript,
  kProgram,  // torch.export: detect and the loss as graphs
  kPackage,  // AOTInductor: detect as machine code
  kOnnx      // detect in operators of ONNX
};

// The artifact's description of itself: lensbox.json. docs/artifact.md has all fields.
struct Metadata {
  FileKind file_kind = FileKind::kTorchScript;
  std::string json;  // the whole document, as UTF-8, on one line
  int64_t format_version = 0;
  std::string name;
  std::string lensbox_version;   // of the Lensbox that wrote the artifact
  std::string torch_version;     // of its torch
  std::vector<std::string> ops;  // schemas of the custom ops that the code calls
  std::vector<std::string> methods;
  Reading reading;             // how photographs are read for it
  double score_threshold = 0;  // the defaults of detect
  double iou_threshold = 0;
  SelfTest self_test;
  std::vector<std::string> classes;  // names by label; empty if there is one kind and no labels
  std::vector<Extra> extras;         // the outputs in Detection::extras, in this order
  Precision precision = Precision::kFloat32;
  std::optional<Compiled> compiled;  // of a package of machine code only
  int64_t batch = 0;                 // the one size of batches that its detect takes; 0: any
};

}  // namespace lensbox
