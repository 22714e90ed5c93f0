#pragma once

#include <nlohmann/json.hpp>

// The process at the other end of stdout has gone. Only thrown after end_on_closed_stdout().
struct ClosedOutput {};

// Writes the document on a line of its own to stdout, at once. Throws std::system_error if it cannot be
// written.
void print_line(const nlohmann::ordered_json& document);

// From now on a closed stdout makes print_line throw ClosedOutput, in place of ending the process with a
// signal.
void end_on_closed_stdout();
