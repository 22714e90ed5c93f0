#pragma once

#include <stdexcept>

namespace lensbox {

// What the library throws. The messages are complete sentences for the user: they name the file or the
// argument, the rule, and the value received.

// The artifact or its op library is absent, damaged, or does not fit this process.
struct ArtifactError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An image, a file of boxes, or a value given to a method is bad; the artifact may be fine.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The device asked for does not exist on this machine, or is not the name of a device.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace lensbox
