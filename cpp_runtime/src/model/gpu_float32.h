#pragma once

namespace lensbox {

// The precision of float32 convolutions and matrix products on GPUs.
enum class GpuFloat32 {
  kUntouched,  // as the process has it: for a CPU, where it makes no difference
  kFull,
  kTf32  // tensor cores round factors to 10 of the 23 bits of the mantissa
};

// Set the precision while an artifact computes. torch has one switch for the whole process: the first scope
// sets the switch and the last scope restores it. A scope of the other kind waits until the earlier scopes
// have ended. Scopes of a thread must not be nested.
class GpuFloat32Scope {
 public:
  explicit GpuFloat32Scope(GpuFloat32 wanted);
  ~GpuFloat32Scope();

  GpuFloat32Scope(const GpuFloat32Scope&) = delete;
  GpuFloat32Scope& operator=(const GpuFloat32Scope&) = delete;

 private:
  GpuFloat32 wanted_;
};

}  // namespace lensbox
