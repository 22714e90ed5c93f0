#pragma once

#include <lensbox/error.h>
#include <torch/version.h>

#include <exception>
#include <filesystem>
#include <string>

namespace lensbox {

// The torch whose headers this library was built with.
inline constexpr const char* kTorchDescription = "torch " TORCH_VERSION;

// Throw ArtifactError: "artifact PATH: reason".
[[noreturn]] void fail_artifact(const std::filesystem::path& artifact, const std::string& reason);

// Return "2.13" for "2.13.0+cpu". C++ interfaces of torch change between minor versions, not within them.
std::string minor_version(const std::string& version);

// Return the message of an error thrown by torch, without its C++ stack trace, on lines indented by two
// spaces.
std::string torch_message(const std::exception& error);

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
