#include "vectors.h"

namespace lensbox {
namespace {

Vectors chosen = Vectors::kBaseline;

}  // namespace

// The build record of the kernels, readable in the file like the record of library.cpp, which refers to it.
LENSBOX_KERNEL const char LENSBOX_KERNELS_NAME[];
[[gnu::used]] const char LENSBOX_KERNELS_NAME[] = LENSBOX_KERNELS_RECORD;

void lensbox_cpu_set_vectors(Vectors vectors) {
  chosen = vectors;
}

Vectors widest_vectors() {
  return chosen;
}

}  // namespace lensbox
