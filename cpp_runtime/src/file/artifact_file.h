#pragma once

#include <lensbox/metadata.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace caffe2::serialize {
class PyTorchStreamReader;
class ReadAdapterInterface;
}  // namespace caffe2::serialize

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

// Return torch's reader of bytes, which must outlive it.
std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader_of(std::string_view bytes);

// --- records.cpp ---

// The records of torch's archives, zip files, where they lie in memory. archive: torch's reader of `bytes`.
// Both functions throw std::runtime_error.

// Return the bytes of a record, which must be stored without compression, as torch does.
std::string_view stored_record(caffe2::serialize::PyTorchStreamReader& archive, std::string_view bytes,
                               const std::string& name);

// Compare all records with their CRC-32 in the zip directory, at which torch's reader does not look. An
// archive that was written without (torch.serialization.set_crc32_options) has zeros there, which pass.
void check_sums(caffe2::serialize::PyTorchStreamReader& archive, std::string_view bytes);

}  // namespace lensbox
