#pragma once

#include <c10/util/Exception.h>
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

// Return the message of an error thrown by torch, without its C++ stack trace, on lines indented by two
// spaces.
inline std::string torch_message(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return indented(torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
}

// Call `function`, and turn an exception of torch into an Error with kInternal.
template <class Function>
auto guarded_torch(Function function) {
  try {
    return function();
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kInternal, "lensbox: unexpected error:\n" + torch_message(error));
  }
}

}  // namespace lensbox
