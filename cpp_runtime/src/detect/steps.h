#pragma once

#include <c10/core/Device.h>
#include <lensbox/torch/tensors.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "model/detector_module.h"

// The parts of Detector, each in a source file of its own.
namespace lensbox {

// --- load_module.cpp ---

struct LoadedModule {
  c10::Device device;
  Metadata metadata;
  std::shared_ptr<const DetectorModule> module;
};

// Load an artifact of any format, as Detector::load says. Throws ArtifactError, DeviceError.
LoadedModule load_module(const std::filesystem::path& path, const LoadOptions& options);

// --- detect_batch.cpp ---

// The steps around the method detect, for a batch of photographs.

// Return canvases and geometry on `device`. Throws InputError for a photograph that breaks the rules of
// Photo, ArtifactError.
Prepared prepare(const DetectorModule& module, c10::Device device, const std::vector<Photo>& photos);

// Convert detections in canvases to pixels of the photographs. Throws ArtifactError.
Found restore(const DetectorModule& module, const Found& found, const at::Tensor& geometry);

// Return the detections of each photograph, after one copy to the CPU, and one more for extras. Throws
// ArtifactError for counts outside of the slots and for labels without a class.
std::vector<std::vector<Detection>> collect(const DetectorModule& module, const Found& found);

// --- detector.cpp ---

// Wait for the detections of detect_tensors, and return those of each photograph. Throws as the function
// above.
std::vector<std::vector<Detection>> collect(const Detector& detector, const Found& found);

// --- tiles.cpp ---

// Tiles of large photographs: docs/tiles.md has the rule, which the op library computes.

// Throw InputError for a specification out of its range.
void check_tiles(const TileSpec& spec);

// Return the views of a photograph: the whole photograph first, if requested, then the tiles row by row,
// without copies. A photograph that fits into one tile is one view. Throws InputError for a photograph that
// is not at full size, and for more than 4096 tiles.
std::vector<Photo> cut_into_tiles(const Photo& photo, const Canvas& canvas, const TileSpec& spec);

// Detect in the views of a photograph and return its detections. Throws as detect_photos does.
std::vector<Detection> detect_views(const Detector& detector, const std::vector<Photo>& views,
                                    const Thresholds& thresholds);

// Return the detections of a photograph from the detections in its views, best first.
std::vector<Detection> merge_tiles(std::vector<std::vector<Detection>> found, const std::vector<Photo>& views,
                                   double iou_threshold);

// --- self_test.cpp ---

// Run the self-test stored in the artifact: detection in a small image and the loss of a few boxes, compared
// by the rule of docs/artifact.md, "The self-test". Throws ArtifactError if the self-test cannot be run.
SelfTestReport run_self_test(const Detector& detector);

}  // namespace lensbox
