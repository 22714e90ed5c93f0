#include "full_float32.h"

#include <ATen/Context.h>

namespace lensbox {

void use_full_float32(c10::Device device) {
  if (!device.is_cuda()) return;
  // The older of torch's two interfaces: after setFloat32Precision, the newer, reading the older one throws.
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
}

}  // namespace lensbox
