#pragma once

#include <c10/core/Device.h>

#include <string>

namespace lensbox {

// Return the device of a name: "cpu", "cuda" (the first GPU), "cuda:N", or "auto" (the first GPU if there is
// one, else the CPU). Throws DeviceError for any other name and for a GPU that is not there.
c10::Device parse_device(const std::string& name);

}  // namespace lensbox
