#include "peak_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <fstream>
#include <string>

namespace {

bool could_reset = false;

// The line "VmHWM:   1234 kB" of /proc/self/status.
std::optional<int64_t> most_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    int64_t kilobytes = 0;
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

void reset_peak_memory(c10::Device device) {
  std::ofstream clear("/proc/self/clear_refs");
  clear << 5 << std::flush;  // the peak alone, see proc(5)
  could_reset = clear.good();
  if (device.is_cuda()) c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

PeakMemory peak_memory(c10::Device device) {
  PeakMemory peak;
  if (could_reset) peak.process = most_resident();
  if (device.is_cuda()) {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    peak.device =
        c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).allocated_bytes[kAll].peak;
  }
  return peak;
}
