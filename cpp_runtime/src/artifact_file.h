#pragma once

#include <lensbox/torch/artifact.h>

#include <filesystem>
#include <memory>
#include <string>

namespace lensbox {

// An artifact in memory. Its bytes were checked, and they are what torch loads: the file may change
// meanwhile.
struct ArtifactFile {
  std::shared_ptr<const std::string> bytes;
  Metadata metadata;
};

// Reads the file once and checks the archive, lensbox.json and, unless it is trusted, the names that the code
// uses. Throws ArtifactError.
ArtifactFile read_artifact_file(const std::filesystem::path& path, Trust trust);

}  // namespace lensbox
