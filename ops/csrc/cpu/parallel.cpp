#include "parallel.h"

namespace lensbox {
namespace {

void run_in_order(int64_t count, void (*body)(int64_t item, const void* context), const void* context) {
  for (int64_t item = 0; item < count; ++item) {
    body(item, context);
  }
}

ParallelLoop chosen = run_in_order;

}  // namespace

void lensbox_cpu_set_parallel_loop(ParallelLoop loop) {
  chosen = loop;
}

ParallelLoop parallel_loop() {
  return chosen;
}

}  // namespace lensbox
