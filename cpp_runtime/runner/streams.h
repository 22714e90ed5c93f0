#pragma once

#include <array>
#include <csignal>
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

// While this object exists, SIGINT and SIGTERM request an end between two frames; the second signal of a kind
// ends the process at once. Signals that were ignored at start, as shells do for background programs, stay
// ignored. Create at most one object at a time.
class StopSignal {
 public:
  // Throws std::system_error.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;

  // A descriptor for poll(), readable as soon as the end is requested.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  std::array<struct sigaction, 2> before_ = {};
};
