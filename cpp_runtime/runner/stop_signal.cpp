#include "stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace {

constexpr std::array kSignals{SIGINT, SIGTERM};

volatile std::sig_atomic_t written_to = -1;

extern "C" void ask_for_the_end(int /*signal*/) {
  const int error = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(written_to, &one, sizeof one);
  errno = error;
}

}  // namespace

StopSignal::StopSignal() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  written_to = descriptor_;
  struct sigaction action = {};
  action.sa_handler = ask_for_the_end;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &before_[i], nullptr);
  }
  close(descriptor_);
}

bool StopSignal::requested() const {
  pollfd descriptor{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return poll(&descriptor, 1, 0) > 0;
}
