#pragma once

#include <lensbox/reading.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

// What the program returns. kOther is for what no user can be blamed for, such as a lack of memory.
enum class ExitCode : int { kGood = 0, kOther = 1, kUsage = 2, kArtifact = 3, kInput = 4 };

// What a command prints on stdout, and the program's exit code.
struct Outcome {
  nlohmann::ordered_json document;
  ExitCode code = ExitCode::kGood;
};

struct ModelOptions {
  std::filesystem::path artifact;
  std::optional<std::filesystem::path> op_library;
  std::string device = "cpu";
  bool trusted = false;  // load code that is not checked
};

struct DetectOptions {
  std::vector<std::filesystem::path> images;
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
};

// The artifact's lensbox.json and what runs it. Needs no op library.
Outcome run_info(const ModelOptions& model);

Outcome run_selftest(const ModelOptions& model);

// A bad image does not stop the others: its entry has "error", and the exit code is kInput.
Outcome run_detect(const ModelOptions& model, const DetectOptions& options);

Outcome run_loss(const ModelOptions& model, const LossOptions& options);
