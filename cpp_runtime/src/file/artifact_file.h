#pragma once

#include <lensbox/metadata.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace caffe2::serialize {
class ReadAdapterInterface;
}

namespace lensbox {

// An artifact in memory, with seal and signature checked. torch loads these bytes, because the file may
// change after the check.
struct ArtifactFile {
  std::shared_ptr<const std::string> bytes;
  Metadata metadata;
};

// Read the file once, check its seal, and its signature if a public key is given, then read lensbox.json.
// Throws ArtifactError.
ArtifactFile read_artifact_file(const std::filesystem::path& path,
                                const std::optional<std::filesystem::path>& public_key);

// Return a reader of the bytes for torch. owner: keeps the bytes alive.
std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader_of(std::string_view bytes,
                                                                   std::shared_ptr<const void> owner);

}  // namespace lensbox
