#pragma once

#include <c10/core/Device.h>

#include <string>

namespace lensbox {

// Such as sm_90; empty where the driver cannot be asked.
std::string gpu_architecture(c10::Device device);

}  // namespace lensbox
