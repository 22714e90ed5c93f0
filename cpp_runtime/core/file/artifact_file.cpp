#include "file/artifact_file.h"

#include <lensbox/detector.h>

#include <set>
#include <string_view>
#include <utility>

#include "file/archive.h"
#include "file/errors.h"
#include "file/files.h"
#include "file/metadata.h"
#include "onnx_model.h"  // of the op library

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetadata = "extra/lensbox.json";
constexpr const char* kNoMetadata =
    "is not a Lensbox artifact: it holds no lensbox.json; `lensbox export` writes artifacts";
constexpr const char* kPackageMark = "archive_format";  // in all archives of torch.export
constexpr char kOnnxFirstField = '\x08';  // ModelProto.ir_version, which every writer puts first
constexpr uint64_t kMostBytes = (uint64_t{1} << 31) - 1;

// Say what a file is that is neither an archive nor an ONNX model, for files that people confuse with
// artifacts.
std::string describe_foreign_file(std::string_view bytes) {
  if (bytes.empty()) return ": it is empty";
  // A safetensors file begins with the length of its header, which is JSON.
  if (bytes.size() > 8 && bytes[8] == '{') return " but holds weights: `lensbox export --weights` takes it";
  if (bytes.starts_with("\xff\xd8\xff") || bytes.starts_with("\x89PNG")) return " but an image";
  if (bytes.starts_with("\x80\x02")) return " but a pickle, such as an old checkpoint of torch.save";
  return ", which begins as a zip archive or an ONNX model";
}

// Return the names in the archive. torch finds an entry without regard to case, so one whose name differs
// from another's only by case may be read in its place.
std::set<std::string> names_in(const fs::path& path, const Archive& archive) {
  std::set<std::string> names;
  std::set<std::string> lower_case;
  for (const std::string& name : archive.names()) {
    std::string lower = name;
    for (char& c : lower) {
      if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
    }
    if (!lower_case.insert(lower).second) fail_artifact(path, "has two entries " + name);
    names.insert(name);
  }
  return names;
}

void check_metadata_size(const fs::path& path, size_t size) {
  if (size <= kMostMetadata) return;
  fail_artifact(path, "its lensbox.json must be at most " + std::to_string(kMostMetadata) + " bytes, is " +
                          std::to_string(size));
}

FileKind kind_of(const fs::path& path, const std::set<std::string>& names) {
  if (names.contains(kPackageMark)) {
    return names.contains("models/detect.json") ? FileKind::kProgram : FileKind::kPackage;
  }
  // torch.save writes the same kind of archive, but only TorchScript has a record of constants.
  if (names.contains("data.pkl") && names.contains("constants.pkl")) return FileKind::kTorchScript;
  fail_artifact(path, "is not a TorchScript file: it holds no code (was it written by torch.save?)");
}

void read_archive(const fs::path& path, ArtifactFile& file) {
  try {
    const Archive archive(*file.bytes);
    const std::set<std::string> names = names_in(path, archive);
    const FileKind kind = kind_of(path, names);
    if (!names.contains(kMetadata)) fail_artifact(path, kNoMetadata);
    check_metadata_size(path, archive.size(kMetadata));
    file.metadata = parse_metadata(archive.inflated(kMetadata), path);
    file.metadata.file_kind = kind;
    if (kind == FileKind::kPackage && !file.metadata.compiled) {
      fail_artifact(
          path,
          "has an unusable lensbox.json: it lacks the entry compiled, which names the machine of the code");
    }
  } catch (const ArchiveError& error) {
    fail_artifact(path, std::string("cannot be read as an archive of torch:\n  ") + error.what());
  }
}

void read_onnx(const fs::path& path, ArtifactFile& file) {
  std::optional<std::string> metadata;
  try {
    metadata = onnx::read_metadata(*file.bytes);
  } catch (const onnx::ModelError& error) {
    fail_artifact(path, error.what());
  }
  if (!metadata) fail_artifact(path, kNoMetadata);
  check_metadata_size(path, metadata->size());
  file.metadata = parse_metadata(*metadata, path);
  file.metadata.file_kind = FileKind::kOnnx;
}

// Check the seal, then read lensbox.json.
void read_content(const fs::path& path, ArtifactFile& file) {
  const std::string_view bytes = *file.bytes;
  const bool is_onnx = bytes.starts_with(kOnnxFirstField);
  if (!is_onnx && !bytes.starts_with("PK"))
    fail_artifact(path, "is not an artifact" + describe_foreign_file(bytes));
  if (const std::string fault = seal_fault(bytes); !fault.empty()) fail_artifact(path, fault);
  if (is_onnx) {
    read_onnx(path, file);
  } else {
    read_archive(path, file);
  }
}

}  // namespace

ArtifactFile read_artifact_file(const fs::path& path, const std::optional<fs::path>& public_key) {
  ArtifactFile file{.bytes = std::make_shared<const std::string>(read_needed("artifact", path, kMostBytes))};
  if (public_key) {
    const std::string signature = read_signature(path);
    require_signature(*file.bytes, signature, path.string() + ".sig", path, *public_key);
  }
  read_content(path, file);
  return file;
}

ArtifactFile artifact_in_memory(std::span<const uint8_t> bytes, const fs::path& path,
                                const std::optional<fs::path>& public_key,
                                std::span<const uint8_t> signature) {
  if (bytes.size() > kMostBytes) {
    fail_artifact(path, "must have at most " + std::to_string(kMostBytes) + " bytes, got " +
                            std::to_string(bytes.size()));
  }
  ArtifactFile file{.bytes = std::make_shared<const std::string>(bytes.begin(), bytes.end())};
  if (public_key) {
    if (signature.empty()) fail_artifact(path, "is not signed: options.signature is empty");
    require_signature(*file.bytes, {reinterpret_cast<const char*>(signature.data()), signature.size()},
                      "options.signature", path, *public_key);
  }
  read_content(path, file);
  return file;
}

Metadata read_metadata(const fs::path& artifact, const std::optional<fs::path>& public_key) {
  return read_artifact_file(artifact, public_key).metadata;
}

}  // namespace lensbox
