#include "model/gpu_float32.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <array>
#include <condition_variable>
#include <mutex>

namespace lensbox {
namespace {

constexpr std::array kOps{at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL};

// The switches of both of torch's interfaces: some of its kernels read the older one, which throws if the two
// disagree.
struct Switches {
  bool convolutions;
  bool products;
  bool medium;  // products in bfloat16, where they may be
  std::array<at::Float32Precision, kOps.size()> newer;
};

// Return read(), or `otherwise` in a process that has set the newer interface alone.
template <class Read>
bool read_or(bool otherwise, Read read) {
  try {
    return read();
  } catch (const c10::Error&) {
    return otherwise;
  }
}

Switches read_switches() {
  const at::Context& context = at::globalContext();
  Switches switches{};
  for (size_t i = 0; i < kOps.size(); ++i) {
    switches.newer[i] = context.float32Precision(at::Float32Backend::CUDA, kOps[i]);
  }
  const auto is_tf32 = [&](size_t op) { return switches.newer[op] == at::Float32Precision::TF32; };
  switches.convolutions = read_or(is_tf32(0), [&] { return context.allowTF32CuDNN(); });
  switches.products = read_or(is_tf32(2), [&] { return context.allowTF32CuBLAS(); });
  switches.medium =
      read_or(false, [&] { return context.float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM; });
  return switches;
}

// The older interface sets the newer one, too.
void set_switches(bool tf32) {
  at::globalContext().setAllowTF32CuDNN(tf32);
  at::globalContext().setAllowTF32CuBLAS(tf32);
}

void put_back(const Switches& switches) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuDNN(switches.convolutions);
  context.setAllowTF32CuBLAS(switches.products);
  if (switches.medium) context.setFloat32MatmulPrecision("medium");
  for (size_t i = 0; i < kOps.size(); ++i) {
    context.setFloat32Precision(at::Float32Backend::CUDA, kOps[i], switches.newer[i]);
  }
}

// The lock by which calls of both kinds take turns.
class Turns {
 public:
  void begin(GpuFloat32 wanted) {
    std::unique_lock lock(mutex_);
    int& waiting = wanted == GpuFloat32::kTf32 ? waiting_tf32_ : waiting_full_;
    const int& opposite = wanted == GpuFloat32::kTf32 ? waiting_full_ : waiting_tf32_;
    ++waiting;
    // Let waiting calls of the other kind go first, or they could starve.
    changed_.wait(lock, [&] { return running_ == 0 || (now_ == wanted && opposite == 0); });
    --waiting;
    if (running_++ > 0) return;
    now_ = wanted;
    before_ = read_switches();
    set_switches(wanted == GpuFloat32::kTf32);
  }

  void end() {
    const std::lock_guard lock(mutex_);
    if (--running_ > 0) return;
    put_back(before_);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_full_ = 0;
  int waiting_tf32_ = 0;
  int running_ = 0;
  GpuFloat32 now_ = GpuFloat32::kFull;  // of the running calls
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
