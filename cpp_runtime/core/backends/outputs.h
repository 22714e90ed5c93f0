#pragma once

#include <lensbox/detection.h>
#include <lensbox/metadata.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace lensbox {

// The outputs of a detector beside boxes and scores.
struct Outputs {
  int64_t classes = 0;
  std::vector<Extra> extras = {};

  // Return the names of the outputs of detect: boxes, scores, counts, labels if there are classes, extras.
  std::vector<std::string> names() const;
};

// The outputs of an artifact beside boxes and scores.
Outputs outputs_of(const Metadata& metadata);

// An array of numbers: its type as torch names it, such as Float, and its sizes.
struct OutputType {
  std::string type = {};
  std::vector<int64_t> sizes = {};

  // Return "Float [1, 2]".
  std::string described() const;
};

// Return sizes as "[1, 2]".
std::string text_of(const std::vector<int64_t>& sizes);

// Throw ArtifactError unless these are outputs of detect for a batch, in the order of Outputs::names: boxes
// [B, K, 4], scores [B, K], counts [B], int64 labels [B, K], extras [B, K, ...]. The numbers are checked once
// they are on the CPU.
void check_outputs(const std::filesystem::path& artifact, const Outputs& outputs,
                   const std::vector<OutputType>& found, int64_t batch);

// OutputNumbers in the CPU's memory, row by row: float or int64.
struct OutputNumbers {
  std::vector<int64_t> sizes = {};
  std::variant<std::vector<float>, std::vector<int64_t>> values = {};

  const float* floats() const { return std::get<std::vector<float>>(values).data(); }
  const int64_t* integers() const { return std::get<std::vector<int64_t>>(values).data(); }
};

// The detections of a batch of B. Of the K slots of each image, the first `counts` hold a detection, best
// first; the values of the other slots mean nothing.
struct FoundNumbers {
  OutputNumbers boxes = {};                // float [B, K, 4]
  OutputNumbers scores = {};               // float [B, K]
  OutputNumbers counts = {};               // int64 [B]
  OutputNumbers labels = {};               // int64 [B, K], without sizes if there are no classes
  std::vector<OutputNumbers> extras = {};  // [B, S, ...], where S is K, or at least the largest count
};

// Return the largest of the counts. Throws ArtifactError if one is not from 0 to `slots`.
int64_t largest_count(const std::filesystem::path& artifact, const OutputNumbers& counts, int64_t slots);

// Return the detections of each image. Throws ArtifactError for counts outside of the slots and for labels
// without a class.
std::vector<std::vector<Detection>> collect(const std::filesystem::path& artifact, const Outputs& outputs,
                                            const FoundNumbers& found);

}  // namespace lensbox
