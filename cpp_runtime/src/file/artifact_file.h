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

// Return a reader of the bytes for torch.
std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader_of(std::shared_ptr<const std::string> bytes);

// --- ONNX models: onnx_model.cpp ---

// Return whether the file begins like an ONNX model; a zip archive cannot.
bool looks_like_onnx(std::string_view bytes);

// The parts of a serialized ONNX model that are read before onnxruntime sees it.
struct OnnxModel {
  std::string fault;  // why it must not be opened, to be read after the file's name; "" if it may
  std::optional<std::string> metadata;  // the property lensbox.json
};

// Walk the protocol buffer of an ONNX model. A model is refused if any tensor (initializers, attributes,
// sub-graphs) has external data, which onnxruntime would read from any file or from memory of this process,
// if any operator is not one of ONNX's standard, if it has functions or training information, two properties
// of one key, or a malformed field. runtime/file/onnx_model.py has the same rules.
OnnxModel read_onnx_model(std::string_view bytes);

}  // namespace lensbox
