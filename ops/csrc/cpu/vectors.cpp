#include "vectors.h"

#include <ATen/Version.h>

#include <string>

namespace lensbox {

Vectors widest_vectors() {
  static const Vectors widest = [] {
    const std::string capability = at::get_cpu_capability();
    if (capability == "AVX512") return Vectors::kAvx512;
    if (capability == "AVX2") return Vectors::kAvx2;
    return Vectors::kBaseline;
  }();
  return widest;
}

}  // namespace lensbox
