#include <caffe2/serialize/inline_container.h>
#include <lensbox/error.h>
#include <lensbox/metadata.h>

#include "torch_error.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;
using caffe2::serialize::PyTorchStreamReader;

constexpr const char* kRecord = "extra/lensbox.json";

[[noreturn]] void fail(const fs::path& artifact, const std::string& reason) {
  throw ArtifactError("artifact " + artifact.string() + ": " + reason);
}

std::unique_ptr<PyTorchStreamReader> open_archive(const fs::path& artifact) {
  std::error_code error;
  if (!fs::exists(artifact, error)) fail(artifact, "no such file");
  if (!fs::is_regular_file(artifact, error)) fail(artifact, "not a file");
  try {
    return std::make_unique<PyTorchStreamReader>(artifact.string());
  } catch (const std::exception& exception) {
    fail(artifact, "not a TorchScript file (or truncated):\n" + torch_message(exception));
  }
}

}  // namespace

Metadata read_metadata(const fs::path& artifact) {
  const auto archive = open_archive(artifact);
  // torch.save writes the same kind of archive, but only TorchScript has a record of constants.
  if (!archive->hasRecord("constants.pkl")) {
    fail(artifact, "not a TorchScript file: it holds tensors, but no code (was it written by torch.save?)");
  }
  if (!archive->hasRecord(kRecord)) {
    fail(artifact, "a TorchScript file, but without lensbox.json: write it with export/script_model.py");
  }
  const auto [data, size] = archive->getRecord(kRecord);
  return parse_metadata({static_cast<const char*>(data.get()), size}, artifact);
}

Metadata parse_metadata(std::string_view text, const fs::path& artifact) {
  try {
    Metadata metadata;
    metadata.document = nlohmann::ordered_json::parse(text);
    const auto& document = metadata.document;
    const int version = document.at("format_version").get<int>();
    if (version > kFormatVersion) {
      fail(artifact, "has format version " + std::to_string(version) + ", this program reads up to " +
                         std::to_string(kFormatVersion) + ": a newer Lensbox wrote it (" +
                         document.value("lensbox_version", "version not given") + ")");
    }
    document.at("torch_version").get_to(metadata.torch_version);
    document.at("ops").get_to(metadata.ops);
    document.at("methods").get_to(metadata.methods);
    document.at("defaults").at("score_threshold").get_to(metadata.score_threshold);
    document.at("defaults").at("iou_threshold").get_to(metadata.iou_threshold);
    return metadata;
  } catch (const nlohmann::json::exception& error) {
    fail(artifact, std::string("its lensbox.json is damaged: ") + error.what());
  }
}

}  // namespace lensbox
