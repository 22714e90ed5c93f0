#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// The source is not as torch writes it; the message says what is odd.
struct CodeError : std::runtime_error {
  CodeError(int line_of_error, const std::string& what) : std::runtime_error(what), line(line_of_error) {}
  int line;  // from 1
};

// A word of TorchScript source.
struct CodeToken {
  enum class Kind { kName, kNumber, kString, kSign };

  Kind kind;
  std::string_view text;  // of a string: with its quotation marks
  int line;               // from 1

  bool is_name() const { return kind == Kind::kName; }
};

// Splits TorchScript source into words as torch's own lexer does. Where the two could differ, the source is
// refused, so this knows only what torch writes into a file: ASCII, strings in double quotes on one line,
// decimal numbers, and no comments. So is what is nested so deeply, or so long, that torch's recursive parser
// and compiler could run out of stack. Throws CodeError. `source` must outlive the tokens.
std::vector<CodeToken> split_code(std::string_view source);

}  // namespace lensbox
