#include "streams.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>

namespace {

bool ends_on_closed_stdout = false;

volatile std::sig_atomic_t written_to = -1;

extern "C" void request_end(int /*signal*/) {
  const int error = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(written_to, &one, sizeof one);
  errno = error;
}

}  // namespace

void reserve_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // open() takes the lowest free number, which is this one. The direction is the opposite of its use.
    open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE && ends_on_closed_stdout) {
      throw ClosedOutput();
    } else if (errno == EAGAIN) {
      // A non-blocking stdout, which another process may share: wait until it is writable.
      pollfd descriptor{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
      poll(&descriptor, 1, -1);
    } else if (errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "cannot write to stdout");
    }
  }
}

void end_on_closed_stdout() {
  ends_on_closed_stdout = true;
  std::signal(SIGPIPE, SIG_IGN);
}

void print_line(const nlohmann::ordered_json& document) {
  // File names need not be UTF-8; JSON must be.
  write_stdout(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

int request_end_on_signals() {
  written_to = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (written_to < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  struct sigaction action = {};
  action.sa_handler = request_end;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  return written_to;
}
