#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

// Open /dev/null for each of stdin, stdout and stderr that is closed, in the other direction, so that no
// other file takes its number. Using the stream fails as before. Call this before anything is opened.
void reserve_closed_streams();

// Thrown if the reader of stdout has closed it, and only after end_on_closed_stdout().
struct ClosedOutput {};

// Write all of the text to stdout, at once. Throws std::system_error if it cannot be written.
void write_stdout(std::string_view text);

// From now on, let write_stdout throw ClosedOutput for a closed stdout; by default a signal ends the process.
void end_on_closed_stdout();

// Write the document to stdout as one line, as write_stdout does.
void print_line(const nlohmann::ordered_json& document);

// From now on, SIGINT and SIGTERM request an end between two frames: return a descriptor for poll() that is
// readable once they do. The second signal of a kind ends the process at once. Signals that were ignored at
// start, as shells do for background programs, stay ignored. Call this once. Throws std::system_error.
int request_end_on_signals();
