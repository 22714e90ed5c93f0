#pragma once

#include <torch/version.h>

namespace lensbox {

// The torch whose headers this library was built with.
inline constexpr const char* kTorchDescription = "torch " TORCH_VERSION;

}  // namespace lensbox
