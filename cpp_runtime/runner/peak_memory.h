#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

// The most memory that was in use since the last reset, in bytes. Nothing where it cannot be known.
struct PeakMemory {
  std::optional<int64_t> process;  // resident, of the whole process
  std::optional<int64_t> device;   // that torch's allocator gave out on the GPU
};

void reset_peak_memory(c10::Device device);
PeakMemory peak_memory(c10::Device device);
