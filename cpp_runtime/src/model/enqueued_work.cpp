#include "model/enqueued_work.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>

namespace lensbox {
namespace {

// Older versions of torch cannot tell. An event in a captured stream is then noted, and waiting for it fails.
template <class Stream>
bool is_captured(const Stream& stream) {
  if constexpr (requires { stream.is_capturing(); }) return stream.is_capturing();
  return false;
}

}  // namespace

EnqueuedWork::~EnqueuedWork() {
  for (const auto& [stream, end] : ends_) {
    try {
      end.synchronize();
    } catch (
        const std::exception&) {  // a GPU that failed, or CUDA has ended before the program: no work runs
    }
  }
}

void EnqueuedWork::note(c10::Device device) noexcept {
  if (device.is_cpu()) return;
  try {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    if (is_captured(stream)) return;
    const std::lock_guard lock(mutex_);
    ends_.try_emplace(stream, device.type()).first->second.record(stream);
  } catch (const std::exception&) {  // a GPU that takes no event takes no further work either
  }
}

}  // namespace lensbox
