#include "keep_freed_memory.h"

#include <malloc.h>

#include <climits>
#include <cstdlib>
#include <string_view>

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
