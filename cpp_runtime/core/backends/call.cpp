#include "backends/call.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "backends/backend.h"

namespace lensbox {
namespace {

using namespace std::chrono_literals;

// No locks: a fork may come while another thread holds one.
std::atomic<int> running = 0;
std::atomic<bool> is_ending = false;
std::atomic<pid_t> first_process = 0;  // that computed
std::atomic<int> most_threads = 1;     // of a session of onnxruntime
thread_local int own = 0;              // the calls of this thread, nested in each other
thread_local bool ends_program = false;
thread_local bool has_ended = false;  // the thread, which loses torch's caches as it ends

struct ThreadEnd {
  ~ThreadEnd() { has_ended = true; }
};

// Wait for the calls of other threads, but not for a thread that hangs: nobody else would end the program.
void end_calls() {
  ends_program = true;
  is_ending = true;
  if (first_process != getpid()) return;  // a forked child counts calls of threads that it lacks
  for (int i = 0; i < 10'000 && running > own; ++i) {
    std::this_thread::sleep_for(1ms);
  }
}

void require_threads_of_its_own() {
  pid_t first = 0;
  const pid_t process = getpid();
  if (first_process.compare_exchange_strong(first, process) || first == process) return;
  if (std::max<int>(most_threads, threads_of_torch()) == 1) return;
  throw Error(ErrorCode::kInternal, "the detector must be used in the process that computed first, " +
                                        std::to_string(first) + ", got its forked child " +
                                        std::to_string(process) +
                                        ", which lacks the threads: fork first, or set OMP_NUM_THREADS=1");
}

}  // namespace

Call::Call() {
  if (has_ended) {
    throw Error(
        ErrorCode::kInternal,
        "the thread has ended, and with it torch's caches: a function of atexit, or the destructor of "
        "a static or thread_local object, can detect in a new thread only");
  }
  thread_local const ThreadEnd end;
  static_cast<void>(end);
  require_threads_of_its_own();
  ++running;
  ++own;
  if (!is_ending || ends_program || own > 1) return;
  --running;
  --own;
  std::this_thread::sleep_for(5s);
  throw Error(ErrorCode::kInternal, "the program is ending: no detector computes any more");
}

Call::~Call() {
  --running;
  --own;
  // The first calls make static objects, such as oneDNN's cache, which the program destroys in the reverse
  // order.
  static std::atomic<uint64_t> ended = 0;
  if (std::has_single_bit(++ended)) end_calls_at_exit();
}

void note_threads(int threads) {
  for (int most = most_threads; most < threads && !most_threads.compare_exchange_weak(most, threads);) {
  }
}

void end_calls_at_exit() {
  static_cast<void>(std::atexit(end_calls));
}

}  // namespace lensbox
