#pragma once

#include <c10/core/Device.h>
#include <lensbox/detector.h>

#include <filesystem>
#include <memory>

#include "model/detector_module.h"

namespace lensbox {

struct LoadedModule {
  c10::Device device;
  Metadata metadata;
  std::shared_ptr<const DetectorModule> module;
};

// Load an artifact of any format, as Detector::load says. Throws ArtifactError, DeviceError.
LoadedModule load_module(const std::filesystem::path& path, const LoadOptions& options);

}  // namespace lensbox
