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

// While an object lives, the process computes in full float32 on GPUs, or in TF32, where tensor cores round
// factors to 10 of the 23 bits of the mantissa. torch has one switch for the process: objects of the other
// kind wait, and the last of a kind sets the switch back. Does nothing for a CPU. Not to be nested.
class GpuFloat32 {
 public:
  GpuFloat32(c10::Device device, bool tf32);
  GpuFloat32(const GpuFloat32&) = delete;
  GpuFloat32& operator=(const GpuFloat32&) = delete;
  ~GpuFloat32();

 private:
  bool is_held_;
};

}  // namespace lensbox
