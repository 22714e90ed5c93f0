#pragma once

#include <lensbox/reading.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "raw_format.h"

// What the program returns. kOther is for what no user can be blamed for, such as a lack of memory.
enum class ExitCode : int { kGood = 0, kOther = 1, kUsage = 2, kArtifact = 3, kInput = 4 };

struct ModelOptions {
  std::filesystem::path artifact;
  std::vector<std::filesystem::path> op_libraries;
  std::string device = "cpu";
  bool trusted = false;                             // load code that is not checked
  std::optional<std::filesystem::path> public_key;  // whose signature the artifact must have
};

// Exactly one of images, raw and video is given.
struct DetectOptions {
  std::vector<std::filesystem::path> images;  // files and folders
  std::optional<RawFormat> raw;               // of frames on stdin
  std::string video;                          // a file, or the number of a camera
  bool recursive = false;
  bool json_lines = false;
  std::string annotate;                   // empty: no
  std::optional<double> score_threshold;  // else the artifact's default
  std::optional<double> iou_threshold;
  std::optional<lensbox::Orientation> orientation;  // else what the artifact says
  size_t batch = 1;
  size_t decode_threads = 1;
  bool capture = false;  // CUDA graphs
};

struct LossOptions {
  std::string predictions;  // a file, or "-" for stdin
  std::string targets;
  std::string gradient;  // empty: no; "-" for the document on stdout
};

struct BenchOptions {
  std::vector<int64_t> batch_sizes{1};
  double seconds = 3;
  size_t callers = 1;
  bool capture = false;
};

// The artifact's lensbox.json and what runs it. Needs no op library.
ExitCode run_info(const ModelOptions& model);

ExitCode run_selftest(const ModelOptions& model);

// A bad image does not stop the others: its entry has "error", and the exit code is kInput.
ExitCode run_detect(const ModelOptions& model, const DetectOptions& options);

ExitCode run_loss(const ModelOptions& model, const LossOptions& options);

ExitCode run_bench(const ModelOptions& model, const BenchOptions& options);
