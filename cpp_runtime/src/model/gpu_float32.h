#pragma once

#include <string>

namespace lensbox {

// Let this process compute in full float32 on GPUs, or in TF32, where tensor cores round factors to 10 of the
// 23 bits of the mantissa. torch has one switch for the whole process, so all artifacts of a process must
// need the same precision. Throws ArtifactError, with both names, if an earlier artifact needs the other
// precision.
void set_gpu_float32(const std::string& artifact, bool tf32);

}  // namespace lensbox
