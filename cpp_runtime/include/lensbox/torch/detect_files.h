#pragma once

#include <lensbox/api.h>
#include <lensbox/error.h>
#include <lensbox/file_detections.h>
#include <lensbox/torch/artifact.h>

#include <filesystem>
#include <functional>
#include <variant>
#include <vector>

namespace lensbox {

struct DetectFilesOptions {
  ReadOptions reading;  // usually the artifact's
  double score_threshold;
  double iou_threshold;
  size_t batch_size = 1;      // photographs for the detector at a time
  size_t decode_threads = 1;  // that read files meanwhile
};

// Finds objects in many files: calls `report` for each, in order and in the calling thread, with its number
// in `files` and what was found, or why it cannot be read. Files are read in threads beside the device; up to
// 2 * batch_size + decode_threads photographs are in memory at a time. Throws ArtifactError.
LENSBOX_API void detect_files(
    const Artifact& artifact, const std::vector<std::filesystem::path>& files,
    const DetectFilesOptions& options,
    const std::function<void(size_t, const std::variant<FileDetections, InputError>&)>& report);

}  // namespace lensbox
