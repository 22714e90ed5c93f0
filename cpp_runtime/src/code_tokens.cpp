#include "code_tokens.h"

#include <algorithm>

#include "identifier.h"

namespace lensbox {
namespace {

using Kind = CodeToken::Kind;

// torch parses and compiles recursively. It runs out of stack somewhere above 4,000 of any of these.
constexpr size_t kMaxBrackets = 64;
constexpr int kMaxDepth = 2000;
constexpr int kMaxElifs = 2000;
constexpr size_t kMaxIndentation = 400;
constexpr std::string_view kSigns = "()[]{},:;=+-*/%@<>!&|^~";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// An upper bound of how deep the tree of the current statement is. Every operator, dot and bracket makes it
// deeper, whatever its precedence; items between commas lie side by side.
class StatementDepth {
 public:
  void start_line() {
    if (levels_.size() == 1) levels_ = {{}};
  }

  void add(const CodeToken& token) {
    Level& level = levels_.back();
    if (token.text == "(" || token.text == "[" || token.text == "{") {
      levels_.emplace_back();
    } else if ((token.text == ")" || token.text == "]" || token.text == "}") && levels_.size() > 1) {
      const int inside = std::max(level.current, level.deepest);
      levels_.pop_back();
      levels_.back().current += 1 + inside;
    } else if (token.text == ",") {
      level = {.current = 0, .deepest = std::max(level.current, level.deepest)};
    } else if (token.kind == Kind::kSign || token.text == "if" || token.text == "not" ||
               token.text == "and" || token.text == "or") {
      ++level.current;
    }
  }

  bool is_bounded() const { return levels_.size() <= kMaxBrackets && levels_.back().current <= kMaxDepth; }

 private:
  // Of an open bracket: the depth of its item that is being read, and that of the deepest one before.
  struct Level {
    int current = 0;
    int deepest = 0;
  };

  std::vector<Level> levels_{{}};
};

class Splitter {
 public:
  explicit Splitter(std::string_view source) : source_(source) {}

  std::vector<CodeToken> split() {
    skip_indentation();
    while (position_ < source_.size()) {
      if (source_[position_] == '\n') {
        end_line();
      } else if (source_[position_] == ' ') {
        ++position_;
      } else {
        take_word();
      }
    }
    return std::move(tokens_);
  }

 private:
  // '\0', which is in no word, behind the end.
  char peek(size_t offset = 0) const {
    return offset < source_.size() - position_ ? source_[position_ + offset] : '\0';
  }

  void end_line() {
    ++position_;
    ++line_;
    depth_.start_line();
    skip_indentation();
  }

  void skip_indentation() {
    const size_t text = std::min(source_.find_first_not_of(' ', position_), source_.size());
    if (text - position_ > kMaxIndentation) throw CodeError(line_, "it is nested too deeply");
    position_ = text;
  }

  void take_word() {
    const char c = peek();
    const size_t begin = position_;
    Kind kind = Kind::kSign;
    if (begins_identifier(c)) {
      kind = Kind::kName;
      take_name();
    } else if (is_digit(c)) {
      kind = Kind::kNumber;
      take_number();
    } else if (c == '"') {
      kind = Kind::kString;
      take_string();
    } else {
      take_sign();
    }
    add({kind, source_.substr(begin, position_ - begin), line_});
  }

  void take_name() {
    while (continues_identifier(peek())) {
      ++position_;
    }
  }

  void take_digits() {
    while (is_digit(peek())) {
      ++position_;
    }
  }

  void take_number() {
    take_digits();
    const size_t integer_end = position_;
    if (peek() == '.') {
      ++position_;
      take_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
      if (is_digit(peek(1 + sign))) position_ += 1 + sign;
      take_digits();
    }
    if (peek() == 'j') ++position_;
    if (!continues_identifier(peek())) return;
    position_ = integer_end;  // of `1.real`, the number is 1
    if (peek() != '.') refuse();
  }

  void take_string() {
    ++position_;
    while (peek() != '"') {
      if (peek() == '\\') ++position_;
      if (peek() < ' ' || peek() > '~') refuse();
      ++position_;
    }
    ++position_;
    if (peek() == '"') refuse();  // of three, torch takes what follows for a string that spans lines
  }

  void take_sign() {
    const bool is_dot = peek() == '.' && !is_digit(peek(1));
    if (source_.substr(position_).starts_with("...")) {
      position_ += 3;
    } else if (is_dot || kSigns.find(peek()) != std::string_view::npos) {
      ++position_;
    } else {
      refuse();
    }
  }

  void add(const CodeToken& token) {
    check_glue(token);
    depth_.add(token);
    if (token.text == "elif") ++elifs_;  // an `if` inside the one before it
    if (!depth_.is_bounded() || elifs_ > kMaxElifs) throw CodeError(line_, "it is nested too deeply");
    tokens_.push_back(token);
  }

  // torch reads `not in` and `is not` before it looks where the second word ends.
  void check_glue(const CodeToken& token) const {
    if (tokens_.empty()) return;
    const std::string_view before = tokens_.back().text;
    const auto is_glued = [&](std::string_view first, std::string_view second) {
      return before == first && token.text.starts_with(second) && token.text != second;
    };
    if (is_glued("not", "in") || is_glued("is", "not")) {
      throw CodeError(line_, "torch would misread '" + std::string(before) + "' before '" +
                                 std::string(token.text) + "'");
    }
  }

  [[noreturn]] void refuse() const { throw CodeError(line_, "it is not as torch writes it"); }

  std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  StatementDepth depth_;
  int elifs_ = 0;
  std::vector<CodeToken> tokens_;
};

}  // namespace

std::vector<CodeToken> split_code(std::string_view source) {
  return Splitter(source).split();
}

}  // namespace lensbox
