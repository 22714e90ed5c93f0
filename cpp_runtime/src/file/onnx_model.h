#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lensbox {

// Return whether the file begins like an ONNX model; a zip archive cannot.
bool looks_like_onnx(std::string_view bytes);

// The parts of a serialized ONNX model that are read before onnxruntime sees it.
struct OnnxModel {
  std::string fault;  // why it must not be opened, to be read after the file's name; "" if it may
  std::optional<std::string> metadata;  // the property lensbox.json
};

// Walk the protocol buffer of an ONNX model. A model is refused if any tensor (initializers, attributes,
// sub-graphs) has external data, which onnxruntime would read from any file or from memory of this process,
// if any operator is not one of ONNX's standard, or if it has functions or training information.
OnnxModel read_onnx_model(std::string_view bytes);

}  // namespace lensbox
