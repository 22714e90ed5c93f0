#include "process_start.h"

#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace {

constexpr int kStartTimeField = 22;  // of /proc/self/stat, counted from 1: see proc(5)

double main_reached = 0;  // seconds since the machine's start

}  // namespace

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
