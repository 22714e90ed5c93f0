#pragma once

#include <c10/core/Device.h>

namespace lensbox {

// If `device` is a GPU, makes this process compute float32 convolutions and matrix products on GPUs without
// TF32, to which tensor cores would round what they multiply: where two boxes nearly tie, NMS could then keep
// another one than on the CPU.
void use_full_float32(c10::Device device);

}  // namespace lensbox
