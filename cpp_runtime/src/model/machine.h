#pragma once

#include <c10/core/Device.h>
#include <lensbox/metadata.h>

#include <filesystem>
#include <istream>
#include <string>
#include <vector>

namespace lensbox {

// Return the device of a name: "cpu", "cuda" (the first GPU), "cuda:N", or "auto" (the first GPU if there is
// one, else the CPU). Throws DeviceError for any other name and for a GPU that is not there.
c10::Device parse_device(const std::string& name);

// Throw ArtifactError, naming the artifact, if its code is not for this torch, system, processor and GPU;
// DeviceError if it is for another kind of device than `device`.
void require_machine(const std::filesystem::path& artifact, const Compiled& compiled, c10::Device device);

// Return the features in `needed` that `cpuinfo`, the text of Linux's /proc/cpuinfo, does not name.
std::vector<std::string> lacking_features(const std::vector<std::string>& needed, std::istream&& cpuinfo);

// Let this process compute in full float32 on GPUs, or in TF32, where tensor cores round factors to 10 of the
// 23 bits of the mantissa. torch has one switch for the whole process, so all artifacts of a process must
// need the same precision. Throws ArtifactError, with both names, if an earlier artifact needs the other
// precision.
void set_gpu_float32(const std::string& artifact, bool tf32);

}  // namespace lensbox
