#pragma once

#include <c10/core/Device.h>
#include <lensbox/torch/metadata.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// Throws ArtifactError, naming the artifact, if its code is not for this torch, system, processor and GPU;
// DeviceError where it is for a device of another kind than `device`.
void require_machine(const std::filesystem::path& artifact, const Compiled& compiled, c10::Device device);

// Those of `needed` that `cpuinfo`, the text of Linux's /proc/cpuinfo, does not name.
std::vector<std::string> lacking_features(const std::vector<std::string>& needed, std::string_view cpuinfo);

}  // namespace lensbox
