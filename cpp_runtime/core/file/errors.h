#pragma once

#include <lensbox/error.h>

#include <exception>
#include <filesystem>
#include <string>

namespace lensbox {

// Throw ArtifactError: "artifact PATH: reason".
[[noreturn]] inline void fail_artifact(const std::filesystem::path& artifact, const std::string& reason) {
  throw ArtifactError("artifact " + artifact.string() + ": " + reason);
}

// Return the message of an exception, of torch's own without its C++ stack trace. Defined where
// load_with_torch of backends/backend.h is.
std::string message_of(const std::exception& error);

// Return a message on lines indented by two spaces.
inline std::string indented(const std::string& message) {
  std::string text = "  ";
  for (const char c : message) {
    text += c;
    if (c == '\n') text += "  ";
  }
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
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
    throw Error(ErrorCode::kInternal, "lensbox: unexpected error:\n" + indented(message_of(error)));
  }
}

}  // namespace lensbox
