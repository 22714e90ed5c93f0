#pragma once

#include <c10/core/Device.h>
#include <lensbox/api.h>

#include <string>

namespace lensbox {

// The device that `name` means: "cpu", "cuda" (the first GPU), "cuda:N", or "auto" (the first GPU if there is
// one, else the CPU). Throws DeviceError for any other name and for a GPU that is not there.
LENSBOX_API c10::Device parse_device(const std::string& name);

}  // namespace lensbox
