#include "json_output.h"

#include "standard_streams.h"

void print_line(const nlohmann::ordered_json& document) {
  // File names need not be UTF-8; JSON must be.
  write_stdout(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}
