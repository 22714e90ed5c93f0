#include "json_output.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <string_view>
#include <system_error>

void print_line(const nlohmann::ordered_json& document) {
  // File names need not be UTF-8; JSON must be.
  const std::string line = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = write(STDOUT_FILENO, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      throw ClosedOutput();
    } else if (errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "cannot write to stdout");
    }
  }
}

void end_on_closed_stdout() {
  std::signal(SIGPIPE, SIG_IGN);
}
