#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// The newest version of the artifact format that this library reads.
inline constexpr int kFormatVersion = 1;

// What an artifact says about itself: the extra file lensbox.json inside the TorchScript archive.
struct Metadata {
  nlohmann::ordered_json document;  // all of it, in the order of the file
  std::string torch_version;        // of the torch that wrote the artifact
  std::vector<std::string> ops;     // schemas of the custom ops that its code calls
  std::vector<std::string> methods;
  double score_threshold;  // the defaults of detect
  double iou_threshold;
};

// Reads lensbox.json without loading the model, so it needs no custom op. Throws ArtifactError if the file is
// absent, no TorchScript archive, has no lensbox.json, or has one of a newer format.
Metadata read_metadata(const std::filesystem::path& artifact);

// The same from the text of lensbox.json; `artifact` is only named in errors.
Metadata parse_metadata(std::string_view text, const std::filesystem::path& artifact);

}  // namespace lensbox
