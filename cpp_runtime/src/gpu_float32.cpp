#include "gpu_float32.h"

#include <ATen/Context.h>

#include <array>
#include <condition_variable>
#include <mutex>

namespace lensbox {
namespace {

constexpr std::array kOps{at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL};
using Switches = std::array<at::Float32Precision, kOps.size()>;

// torch's newer interface: of the older, a process that also uses the newer cannot read the switches.
Switches read_switches() {
  Switches switches{};
  for (size_t i = 0; i < kOps.size(); ++i) {
    switches[i] = at::globalContext().float32Precision(at::Float32Backend::CUDA, kOps[i]);
  }
  return switches;
}

void set_switches(const Switches& switches) {
  for (size_t i = 0; i < kOps.size(); ++i) {
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, kOps[i], switches[i]);
  }
}

// Whose turn it is.
class Turns {
 public:
  void begin(GpuFloat32 wanted) {
    std::unique_lock lock(mutex_);
    int& waiting = wanted == GpuFloat32::kTf32 ? waiting_tf32_ : waiting_full_;
    const int& others = wanted == GpuFloat32::kTf32 ? waiting_full_ : waiting_tf32_;
    ++waiting;
    // Whoever comes while others wait lets them go first, or they could wait for ever.
    changed_.wait(lock, [&] { return running_ == 0 || (now_ == wanted && others == 0); });
    --waiting;
    if (running_++ > 0) return;
    now_ = wanted;
    before_ = read_switches();
    Switches switches{};
    switches.fill(wanted == GpuFloat32::kTf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE);
    set_switches(switches);
  }

  void end() {
    const std::lock_guard lock(mutex_);
    if (--running_ > 0) return;
    set_switches(before_);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_full_ = 0;
  int waiting_tf32_ = 0;
  int running_ = 0;
  GpuFloat32 now_ = GpuFloat32::kFull;  // of those that run
  Switches before_{};
};

Turns& turns() {
  static Turns turns;
  return turns;
}

}  // namespace

GpuFloat32Scope::GpuFloat32Scope(GpuFloat32 wanted) : wanted_(wanted) {
  if (wanted_ != GpuFloat32::kUntouched) turns().begin(wanted_);
}

GpuFloat32Scope::~GpuFloat32Scope() {
  if (wanted_ != GpuFloat32::kUntouched) turns().end();
}

}  // namespace lensbox
