#pragma once

#include <lensbox/torch/metadata.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace lensbox {

class OnnxSession;

// Whether a file begins as an ONNX model does, and no zip archive can.
bool looks_like_onnx(std::string_view bytes);

// Why a file is not as the export sealed it, to be read after its name; empty if it is: at its end it has the
// SHA-256 of all before. (A protocol buffer has no checksum, but later entries of a list may be appended.)
std::string seal_fault(std::string_view bytes);

// An artifact's ONNX file: the model of detect, opened, and its lensbox.json.
struct OnnxFile {
  std::shared_ptr<const OnnxSession> session;
  Metadata metadata;
};

// bytes: the whole file. Throws ArtifactError, naming the artifact, if it is damaged, was not written by
// Lensbox, does not fit its own metadata, or cannot be run, as in a program without onnxruntime.
OnnxFile open_onnx_file(const std::filesystem::path& artifact, std::string_view bytes);

}  // namespace lensbox
