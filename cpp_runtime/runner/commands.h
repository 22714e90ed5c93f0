#pragma once

#include <lensbox/detector.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "frames.h"

// The command line asks for something impossible.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The exit codes of the program. kOther: an unexpected failure, such as a lack of memory.
enum class ExitCode : int { kGood = 0, kOther = 1, kUsage = 2, kArtifact = 3, kInput = 4 };

struct ModelOptions {
  std::filesystem::path artifact;
  lensbox::LoadOptions load;
};

// Exactly one of images and raw is given.
struct DetectOptions {
  std::vector<std::filesystem::path> images;  // files and folders
  std::optional<RawFormat> raw;               // of frames on stdin
  bool recursive = false;
  bool json_lines = false;
  lensbox::FilesOptions files;  // frames use batch_size and thresholds, too
  bool capture = false;         // CUDA graphs
};

struct LossOptions {
  std::string predictions;  // a file, or "-" for stdin
  std::string targets;
  std::string gradient;  // empty: no; "-" for the document on stdout
};

struct RunOptions {
  std::string graph;                           // empty: the only one, or "model"
  std::vector<std::filesystem::path> inputs;   // .npy files
  std::vector<std::filesystem::path> outputs;  // written as .npy
};

struct BenchOptions {
  std::vector<int64_t> batch_sizes{1};
  double seconds = 3;
  size_t callers = 1;
  bool capture = false;
};

// Print the artifact's lensbox.json, and versions and device. Needs no op library.
ExitCode run_info(const ModelOptions& model);

ExitCode run_selftest(const ModelOptions& model);

// Print the detections. The entry of a bad image has "error", the rest goes on, and the exit code is kInput.
ExitCode run_detect(const ModelOptions& model, const DetectOptions& options);

ExitCode run_loss(const ModelOptions& model, const LossOptions& options);

// Run a program, whose path is model.artifact, and print the files, dtypes and shapes of the outputs.
ExitCode run_program(const ModelOptions& model, const RunOptions& options);

ExitCode run_bench(const ModelOptions& model, const BenchOptions& options);
