#pragma once

#include <lensbox/detector.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "frames.h"

// The command line asks for something impossible.
struct UsageError : lensbox::Error {
  explicit UsageError(const std::string& message) : Error(lensbox::ErrorCode::kUsage, message) {}
};

// The exit code of a command: nothing for success, else one whose reason is in its document.
using Outcome = std::optional<lensbox::ErrorCode>;

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
void run_info(const ModelOptions& model);

Outcome run_selftest(const ModelOptions& model);

// Print the detections. The entry of a bad image has "error", the rest goes on, and the outcome is kInput.
Outcome run_detect(const ModelOptions& model, const DetectOptions& options);

void run_loss(const ModelOptions& model, const LossOptions& options);

// Run a program, whose path is model.artifact, and print the files, dtypes and shapes of the outputs.
void run_program(const ModelOptions& model, const RunOptions& options);

void run_bench(const ModelOptions& model, const BenchOptions& options);
