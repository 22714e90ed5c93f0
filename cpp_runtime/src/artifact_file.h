#pragma once

#include <lensbox/torch/artifact.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace lensbox {

class OnnxSession;

inline constexpr uint64_t kMostMetadata = uint64_t{16} << 20;  // bytes of lensbox.json

// An artifact in memory. Its bytes were checked, and they are what torch loads: the file may change
// meanwhile.
struct ArtifactFile {
  std::shared_ptr<const std::string> bytes;
  Metadata metadata;
  std::map<std::string, std::string> libraries =
      {};  // those of extra/ops/ by name; none unless it is trusted
  std::shared_ptr<const OnnxSession> session = nullptr;  // of an ONNX file alone
};

// Reads the file once and checks its signature if there is a public key, the archive, lensbox.json and,
// unless it is trusted, the names that the code uses; of an ONNX file, that it is as Lensbox wrote it. Throws
// ArtifactError.
ArtifactFile read_artifact_file(const std::filesystem::path& path, Trust trust,
                                const std::optional<std::filesystem::path>& public_key);

}  // namespace lensbox
