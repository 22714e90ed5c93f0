#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "backends/outputs.h"

namespace lensbox {

// An output of a model. Integers of 32 bits are widened.
struct OnnxOutput {
  OutputType type;
  std::variant<std::vector<float>, std::vector<int64_t>> values;
};

// Computes the outputs of a model, in the order of Outputs::names. canvases: uint8 [B, c, h, w]; thresholds:
// of scores and IoU. Called from several threads at once. Fails if the model lacks an input or output, or has
// one of another type or size.
using OnnxSession = std::function<std::vector<OnnxOutput>(
    const uint8_t* canvases, const std::array<int64_t, 4>& sizes, std::array<float, 2> thresholds)>;

// Open an ONNX model in onnxruntime. Throws ArtifactError as load_onnx of backend.h does.
OnnxSession open_onnx_session(const std::filesystem::path& artifact, std::string_view model,
                              const Outputs& outputs, int threads);

}  // namespace lensbox
