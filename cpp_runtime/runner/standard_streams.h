#pragma once

#include <string_view>

// Keeps the numbers of those of stdin, stdout and stderr that are closed from the files that are opened next,
// which would else be read from or written to in their place. Using them fails as before. To be called before
// anything is opened.
void reserve_closed_streams();

// The process at the other end of stdout has gone. Only thrown after end_on_closed_stdout().
struct ClosedOutput {};

// Writes all of the text to stdout, at once. Throws std::system_error if it cannot be written.
void write_stdout(std::string_view text);

// From now on a closed stdout makes write_stdout throw ClosedOutput, in place of ending the process with a
// signal.
void end_on_closed_stdout();
