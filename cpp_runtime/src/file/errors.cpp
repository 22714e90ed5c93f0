#include "file/errors.h"

#include <c10/util/Exception.h>

namespace lensbox {

void fail_artifact(const std::filesystem::path& artifact, const std::string& reason) {
  throw ArtifactError("artifact " + artifact.string() + ": " + reason);
}

std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

std::string torch_message(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string indented = "  ";
  for (const char c : std::string(torch_error ? torch_error->what_without_backtrace() : error.what())) {
    indented += c;
    if (c == '\n') indented += "  ";
  }
  indented.erase(indented.find_last_not_of(" \n") + 1);
  return indented;
}

}  // namespace lensbox
