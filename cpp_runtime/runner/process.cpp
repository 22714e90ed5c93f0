#include "process.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

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

constexpr int kStartTimeField = 22;  // of /proc/self/stat, counted from 1: see proc(5)

double main_reached = 0;  // seconds since the machine's start

}  // namespace

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestThreshold = 32 << 20;  // that mallopt takes for M_MMAP_THRESHOLD on 64 bits
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos)
    return;
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
#endif
}

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

void note_main_reached() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  main_reached = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::optional<double> milliseconds_to_main() {
  std::string text;
  std::getline(std::ifstream("/proc/self/stat"), text);
  const size_t name_end = text.rfind(')');  // the second field, which may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  for (int field = 3; field < kStartTimeField; ++field) {
    fields >> text;
  }
  double ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return (main_reached - ticks / static_cast<double>(sysconf(_SC_CLK_TCK))) * 1e3;
}
