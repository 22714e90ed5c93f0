#include "code_tokens.h"

#include <algorithm>

#include "identifier.h"

namespace lensbox {
namespace {

using Kind = CodeToken::Kind;

constexpr int kMaxNesting = 64;           // brackets
constexpr int kMaxStatementSigns = 4000;  // all signs but commas
constexpr size_t kMaxIndentation = 200;
constexpr std::string_view kSigns = "()[]{},:;=+-*/%@<>!&|^~";
constexpr std::string_view kOperators[] = {"and", "elif", "if", "not", "or"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

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
    if (depth_ == 0) signs_ = 0;
    skip_indentation();
  }

  // An `elif` is an `if` inside the one before it, and needs no further indentation.
  void skip_indentation() {
    const size_t text = std::min(source_.find_first_not_of(' ', position_), source_.size());
    if (text - position_ > kMaxIndentation) throw CodeError(line_, "it is indented too deeply");
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
    while (continues_identifier(peek()))
      ++position_;
  }

  void take_digits() {
    while (is_digit(peek()))
      ++position_;
  }

  void take_number() {
    take_digits();
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
    if (continues_identifier(peek())) refuse();
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
    if (token.kind == Kind::kSign) {
      if (token.text != ",") ++signs_;
      if (token.text == "(" || token.text == "[" || token.text == "{") ++depth_;
      if (token.text == ")" || token.text == "]" || token.text == "}") --depth_;
    } else if (std::ranges::find(kOperators, token.text) != std::end(kOperators)) {
      ++(token.text == "elif" ? elifs_ : signs_);
    }
    if (depth_ > kMaxNesting || signs_ > kMaxStatementSigns || elifs_ > kMaxStatementSigns) {
      throw CodeError(line_, "a statement is nested too deeply or too long");
    }
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
  int depth_ = 0;
  int signs_ = 0;  // in this statement
  int elifs_ = 0;  // in this file
  std::vector<CodeToken> tokens_;
};

}  // namespace

std::vector<CodeToken> split_code(std::string_view source) {
  return Splitter(source).split();
}

}  // namespace lensbox
