#pragma once

#include <torch/version.h>

#include <exception>
#include <string>

#include "file/errors.h"

namespace lensbox {

// The torch whose headers this library was built with.
inline constexpr const char* kTorchDescription = "torch " TORCH_VERSION;

// Return "2.13" for "2.13.0+cpu". C++ interfaces of torch change between minor versions, not within them.
inline std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

// Return the message of an exception on lines indented by two spaces.
inline std::string torch_message(const std::exception& error) {
  return indented(message_of(error));
}

}  // namespace lensbox
