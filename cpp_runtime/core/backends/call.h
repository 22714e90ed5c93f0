#pragma once

#include <utility>

#include "file/errors.h"

namespace lensbox {

// A call of a detector, while the object lives. Calls may be nested; each should be short, a batch and not a
// folder of photographs.
//
// When the program ends, libraries such as torch take themselves apart, perhaps beside threads that still
// compute. The end waits for their calls, and their next calls wait for the end. Each call must end before
// the detector is destroyed.
class Call {
 public:
  // Throws Error in a forked child of a process that has computed with several threads: the child lacks the
  // threads of OpenMP and onnxruntime, and would wait for them. Throws Error in a thread whose thread_local
  // objects are gone, and in one that goes on for seconds after the program began to end.
  Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();
};

// Note that calls compute with so many threads, which a forked child would lack.
void note_threads(int threads);

// Let the end of the program wait for calls before it takes apart what was opened until now.
void end_calls_at_exit();

// Call `function` as a guarded call of a detector.
template <class Function>
auto guarded_call(Function function) {
  return guarded([&] {
    const Call call;
    return function();
  });
}

}  // namespace lensbox
