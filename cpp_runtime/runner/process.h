#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

// Keep freed memory in this process instead of returning large blocks to the system, whose pages would have
// to be faulted in and zeroed again. Does nothing if the C library is not glibc, or if GLIBC_TUNABLES
// configures malloc. Call this before much memory is in use.
void keep_freed_memory();

// Peak memory since the last reset, in bytes; nothing if it cannot be known.
struct PeakMemory {
  std::optional<int64_t> process;  // resident, of the whole process
  std::optional<int64_t> device;   // that torch's allocator gave out on the GPU
};

void reset_peak_memory(c10::Device device);
PeakMemory peak_memory(c10::Device device);

// Call this first in main.
void note_main_reached();

// Return the milliseconds from the start of the process to main (the dynamic linker and static initialisers),
// to 10 ms; nothing if they cannot be read.
std::optional<double> milliseconds_to_main();
