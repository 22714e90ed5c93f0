#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <mutex>
#include <unordered_map>

namespace lensbox {

// The work that the owner of some memory has given to GPUs, on any streams. The destructor waits for it.
//
// torch keeps freed memory for the stream that allocated it. If another stream still reads the memory, the
// next owner overwrites what this stream reads. So an owner declares its EnqueuedWork behind the memory:
// members are destroyed in reverse.
class EnqueuedWork {
 public:
  EnqueuedWork() = default;
  EnqueuedWork(const EnqueuedWork&) = delete;
  EnqueuedWork& operator=(const EnqueuedWork&) = delete;
  ~EnqueuedWork();

  // Note what the current stream of a GPU has been given until now. Work that is captured is not noted: the
  // owner of the graph keeps the memory. Thread-safe.
  void note(c10::Device device) noexcept;

 private:
  std::mutex mutex_;
  std::unordered_map<c10::Stream, c10::Event> ends_;  // the last work on each stream
};

}  // namespace lensbox
