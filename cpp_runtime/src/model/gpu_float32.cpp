#include "model/gpu_float32.h"

#include <ATen/Context.h>

#include <mutex>
#include <optional>

#include "file/errors.h"

namespace lensbox {
namespace {

struct First {
  std::string artifact;
  bool tf32;
};

const char* mode(bool tf32) {
  return tf32 ? "TF32" : "full float32";
}

}  // namespace

void set_gpu_float32(const std::string& artifact, bool tf32) {
  static std::mutex setting;
  static std::optional<First> first;  // the first artifact on a GPU
  const std::lock_guard lock(setting);
  if (!first) first = {artifact, tf32};
  if (first->tf32 != tf32) {
    fail_artifact(artifact, std::string("needs ") + mode(tf32) + " on GPUs, but " + first->artifact +
                                " set this process to " + mode(first->tf32) + ": use a process for each");
  }
  // These switches set torch's newer interface, setFloat32Precision, too.
  at::globalContext().setAllowTF32CuDNN(tf32);
  at::globalContext().setAllowTF32CuBLAS(tf32);
}

}  // namespace lensbox
