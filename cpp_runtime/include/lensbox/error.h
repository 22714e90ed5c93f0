#pragma once

#include <lensbox/api.h>

#include <stdexcept>
#include <string>

namespace lensbox {

// The kind of an error, equal to lensbox_runner's exit code.
enum class ErrorCode : int {
  kInternal = 1,  // an unexpected failure, such as a lack of memory
  kUsage = 2,     // DeviceError
  kArtifact = 3,  // ArtifactError
  kInput = 4      // InputError
};

// The base of the library's exceptions, always thrown as one of the types below. The messages are complete
// sentences for the user: they name the file or the argument, the rule, and the value received.
class LENSBOX_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// The artifact or its op library is absent, damaged, or does not fit this process.
struct LENSBOX_API ArtifactError : Error {
  explicit ArtifactError(const std::string& message) : Error(ErrorCode::kArtifact, message) {}
};

// An image, a file of boxes, or a value given to a method is bad; the artifact may be fine.
struct LENSBOX_API InputError : Error {
  explicit InputError(const std::string& message) : Error(ErrorCode::kInput, message) {}
};

// The device asked for does not exist on this machine, or is not the name of a device.
struct LENSBOX_API DeviceError : Error {
  explicit DeviceError(const std::string& message) : Error(ErrorCode::kUsage, message) {}
};

}  // namespace lensbox
