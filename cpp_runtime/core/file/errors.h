#pragma once

#include <c10/util/Exception.h>
#include <lensbox/error.h>
#include <torch/version.h>

#include <exception>
#include <filesystem>
#include <string>

namespace lensbox {

// The torch whose headers this library was built with.
inline constexpr const char* kTorchDescription = "torch " TORCH_VERSION;

// Throw ArtifactError: "artifact PATH: reason".
[[noreturn]] inline void fail_artifact(const std::filesystem::path& artifact, const std::string& reason) {
  throw ArtifactError("artifact " + artifact.string() + ": " + reason);
}

// Return "2.13" for "2.13.0+cpu". C++ interfaces of torch change between minor versions, not within them.
inline std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

// Return the message of an error thrown by torch, without its C++ stack trace, on lines indented by two
// spaces.
inline std::string torch_message(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string indented = "  ";
  for (const char c : std::string(torch_error ? torch_error->what_without_backtrace() : error.what())) {
    indented += c;
    if (c == '\n') indented += "  ";
  }
  indented.erase(indented.find_last_not_of(" \n") + 1);
  return indented;
}

// Call `function`, and put the name of its input before the message of an InputError.
template <class Function>
auto named(const std::string& name, Function function) {
  try {
    return function();
  } catch (const InputError& error) {
    throw InputError(name + ": " + error.what());
  }
}

// Call `function`, and turn any exception but Error into an Error with kInternal.
template <class Function>
auto guarded(Function function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInternal, "lensbox: unexpected error:\n" + torch_message(error));
  }
}

}  // namespace lensbox
