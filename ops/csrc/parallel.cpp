// The parallel loop of the CPU kernels: on torch's own OpenMP threads, as many as torch.set_num_threads()
// says, which is one in the workers of a DataLoader.
//
// at::parallel_for is a header's template: it runs in one thread unless this library is compiled for OpenMP,
// and then linked with an OpenMP of its own, beside the one that torch's wheels carry under names of their
// own. So this file calls the functions of the OpenMP that torch has loaded, by weak references. With another
// OpenMP or none, loops run in the calling thread.

#include "cpu/parallel.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <exception>

extern "C" [[gnu::weak]] void GOMP_parallel(void (*function)(void*), void* data, unsigned threads,
                                            unsigned flags);

namespace lensbox {
namespace {

struct ParallelItems {
  int64_t count;
  void (*body)(int64_t item, const void* context);
  const void* context;
  std::atomic<int64_t> next = 0;
  std::atomic<bool> has_failed = false;
  std::exception_ptr error = nullptr;
};

// Each thread takes the next item until none is left. An exception must not leave a thread of OpenMP.
void take_items(void* data) {
  ParallelItems& loop = *static_cast<ParallelItems*>(data);
  const c10::ParallelGuard guard(true);
  try {
    for (int64_t item; (item = loop.next++) < loop.count;) {
      loop.body(item, loop.context);
    }
  } catch (...) {
    loop.next = loop.count;
    if (!loop.has_failed.exchange(true)) loop.error = std::current_exception();
  }
}

void run_in_parallel(int64_t count, void (*body)(int64_t item, const void* context), const void* context) {
  ParallelItems loop = {count, body, context};
  if (count > 1 && GOMP_parallel != nullptr && !at::in_parallel_region() && at::get_num_threads() > 1) {
    // 0: as many threads as torch has set. Another number would make OpenMP start its threads anew.
    GOMP_parallel(take_items, &loop, 0, 0);
  } else {
    take_items(&loop);
  }
  if (loop.error != nullptr) std::rethrow_exception(loop.error);
}

[[maybe_unused]] const bool has_parallel_loop = (lensbox_cpu_set_parallel_loop(run_in_parallel), true);

}  // namespace
}  // namespace lensbox
