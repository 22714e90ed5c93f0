#include "standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace {

bool ends_on_closed_stdout = false;

// Of a descriptor that whoever shares it has told not to block.
void wait_until_stdout_takes_more() {
  pollfd descriptor{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  poll(&descriptor, 1, -1);
}

}  // namespace

void reserve_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free number is this one. Opened for the other direction than it is used in.
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
      wait_until_stdout_takes_more();
    } else if (errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "cannot write to stdout");
    }
  }
}

void end_on_closed_stdout() {
  ends_on_closed_stdout = true;
  std::signal(SIGPIPE, SIG_IGN);
}
