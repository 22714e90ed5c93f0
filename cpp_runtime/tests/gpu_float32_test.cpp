#include "model/gpu_float32.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <lensbox/error.h>

#include <cstdlib>
#include <string>

namespace {

using lensbox::set_gpu_float32;

bool rounds(at::Float32Op op) {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32;
}

// Exit with 0 if all is right. The switches exist without a GPU, so no GPU is needed.
[[noreturn]] void try_both_modes(bool tf32) {
  at::globalContext().setAllowTF32CuDNN(!tf32);
  at::globalContext().setAllowTF32CuBLAS(!tf32);
  set_gpu_float32("first.pt", tf32);
  set_gpu_float32("second.pt", tf32);
  std::string message;
  try {
    set_gpu_float32("third.pt", !tf32);
  } catch (const lensbox::ArtifactError& error) {
    message = error.what();
  }
  const std::string wanted = tf32 ? "third.pt: needs full float32 on GPUs, but first.pt set this process to "
                                    "TF32: use a process for each"
                                  : "third.pt: needs TF32 on GPUs, but first.pt set this process to full "
                                    "float32: use a process for each";
  const bool names_both = message.find(wanted) != std::string::npos;
  const bool is_set = rounds(at::Float32Op::CONV) == tf32 && rounds(at::Float32Op::MATMUL) == tf32 &&
                      at::globalContext().allowTF32CuDNN() == tf32 &&
                      at::globalContext().allowTF32CuBLAS() == tf32;
  std::_Exit(names_both && is_set ? 0 : 1);
}

// In processes of their own, as the first artifact decides for the process.
TEST(GpuFloat32DeathTest, SetsTheFirstModeAndRejectsTheOther) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(try_both_modes(false), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(try_both_modes(true), testing::ExitedWithCode(0), "");
}

}  // namespace
