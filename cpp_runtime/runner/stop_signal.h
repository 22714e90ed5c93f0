#pragma once

#include <array>
#include <csignal>

// While there is one, SIGINT and SIGTERM do not end the process at once: they ask for an end between two
// frames. The second signal of a kind ends it as ever, should something hang. Signals that whoever started
// the process wants ignored, as shells do for programs in the background, stay ignored. At most one at a
// time.
class StopSignal {
 public:
  // Throws std::system_error.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;

  // Can be read from as soon as the end is asked for: for poll().
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  std::array<struct sigaction, 2> before_ = {};
};
