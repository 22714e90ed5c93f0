// The grammar: printers.py and functions.py in torch/utils/_sympy, and Python's reference, chapter 6.

#include "model/program_expression.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

namespace lensbox {
namespace {

constexpr int kDeepestExpression = 100;
constexpr int kMostParts = 10'000;

// The function of find_number_op that an operator between two values calls, or a name in a call.
const std::map<std::string, std::string, std::less<>> kFunctions{
    {"Add", "_operator.add"},
    {"Mul", "_operator.mul"},
    {"Pow", "_operator.pow"},
    {"PowByNatural", "_operator.pow"},
    {"FloatPow", "_operator.pow"},
    {"FloorDiv", "_operator.floordiv"},
    {"CleanDiv", "_operator.floordiv"},
    {"Mod", "_operator.mod"},
    {"PythonMod", "_operator.mod"},
    {"IntTrueDiv", "_operator.truediv"},
    {"FloatTrueDiv", "_operator.truediv"},
    {"Rational", "_operator.truediv"},
    {"LShift", "_operator.lshift"},
    {"RShift", "_operator.rshift"},
    {"Equality", "_operator.eq"},
    {"Eq", "_operator.eq"},
    {"Unequality", "_operator.ne"},
    {"Ne", "_operator.ne"},
    {"StrictLessThan", "_operator.lt"},
    {"LessThan", "_operator.le"},
    {"StrictGreaterThan", "_operator.gt"},
    {"GreaterThan", "_operator.ge"},
    {"Not", "torch.sym_not"},
    {"Max", "torch.sym_max"},
    {"max", "torch.sym_max"},
    {"Min", "torch.sym_min"},
    {"min", "torch.sym_min"},
    {"Abs", "Abs"},
    {"abs", "Abs"},
    {"ToFloat", "torch.sym_float"},
    {"TruncToInt", "math.trunc"},
    {"FloorToInt", "math.floor"},
    {"floor", "math.floor"},
    {"CeilToInt", "math.ceil"},
    {"ceiling", "math.ceil"},
    {"RoundToInt", "RoundToInt"},
    {"RoundDecimal", "RoundDecimal"},
    {"Identity", "_operator.pos"},
    {"cast_symbool_to_symint_guardless", "_operator.pos"},
    {"torch._sym_sqrt", "torch.sym_sqrt"},
    {"OpaqueUnaryFn_sqrt", "torch.sym_sqrt"},
};

// Binary operators by their level, from the loosest; of each level the longer ones first.
struct Operator {
  std::string_view text;
  const char* function;
};
const std::vector<std::vector<Operator>> kLevels{{{"==", "_operator.eq"},
                                                  {"!=", "_operator.ne"},
                                                  {"<=", "_operator.le"},
                                                  {">=", "_operator.ge"},
                                                  {"<", "_operator.lt"},
                                                  {">", "_operator.gt"}},
                                                 {{"|", "_operator.or_"}},
                                                 {{"&", "_operator.and_"}},
                                                 {{"<<", "_operator.lshift"}, {">>", "_operator.rshift"}},
                                                 {{"+", "_operator.add"}, {"-", "_operator.sub"}},
                                                 {{"//", "_operator.floordiv"},
                                                  {"*", "_operator.mul"},
                                                  {"/", "_operator.truediv"},
                                                  {"%", "_operator.mod"}}};

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Parser {
 public:
  Parser(std::string_view text, const SlotOfName& slot_of_name) : rest_(text), slot_of_name_(slot_of_name) {}

  Expression whole() {
    Expression expression = choice();
    skip_spaces();
    if (!rest_.empty()) fail("it ends before");
    return expression;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw std::runtime_error(reason + " \"" + std::string(rest_.substr(0, 40)) + '"');
  }

  void skip_spaces() {
    while (!rest_.empty() && rest_.front() == ' ')
      rest_.remove_prefix(1);
  }

  bool take(std::string_view text) {
    skip_spaces();
    if (!rest_.starts_with(text)) return false;
    // A word must end here; "*" is not the begin of "**".
    const char next = rest_.size() > text.size() ? rest_[text.size()] : ' ';
    if (is_letter(text.back()) && (is_letter(next) || is_digit(next))) return false;
    if (text == "*" && next == '*') return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  void expect(std::string_view text) {
    if (!take(text)) fail("\"" + std::string(text) + "\" must stand before");
  }

  Expression made(Expression expression) {
    for (const Expression& part : expression.parts) {
      expression.depth = std::max(expression.depth, part.depth + 1);
    }
    if (expression.depth > kDeepestExpression || ++count_ > kMostParts) fail("it is too large before");
    return expression;
  }

  Expression joined(Expression::Kind kind, std::vector<Expression> parts) {
    return made({.kind = kind, .parts = std::move(parts)});
  }

  Expression called(const std::string& function, std::vector<Expression> parts) {
    return made(call(function, std::move(parts)));
  }

  // A parenthesis, a call or a sign that begins here.
  template <class Function>
  Expression nested(Function function) {
    if (++nesting_ > kDeepestExpression) fail("it is nested too deeply before");
    Expression expression = function();
    --nesting_;
    return expression;
  }

  Expression choice() {
    Expression value = any_of();
    if (!take("if")) return value;
    Expression condition = any_of();
    expect("else");
    return joined(Expression::Kind::kChoice,
                  {std::move(condition), std::move(value), nested([&] { return choice(); })});
  }

  Expression any_of() {
    std::vector<Expression> parts{all_of()};
    while (take("or"))
      parts.push_back(all_of());
    return parts.size() == 1 ? parts[0] : joined(Expression::Kind::kOr, std::move(parts));
  }

  Expression all_of() {
    std::vector<Expression> parts{negation()};
    while (take("and"))
      parts.push_back(negation());
    return parts.size() == 1 ? parts[0] : joined(Expression::Kind::kAnd, std::move(parts));
  }

  Expression negation() {
    if (!take("not")) return binary(0);
    return called("torch.sym_not", {nested([&] { return negation(); })});
  }

  Expression binary(size_t level) {
    if (level == kLevels.size()) return sign();
    Expression left = binary(level + 1);
    for (int count = 0;; ++count) {
      const auto found =
          std::ranges::find_if(kLevels[level], [&](const Operator& one) { return take(one.text); });
      if (found == kLevels[level].end()) return left;
      if (level == 0 && count > 0) fail("a comparison must have two sides before");
      left = called(found->function, {std::move(left), binary(level + 1)});
    }
  }

  Expression sign() {
    if (take("-")) {
      Expression value = nested([&] { return sign(); });
      if (value.kind != Expression::Kind::kNumber) return called("_operator.neg", {std::move(value)});
      const Number numbers[] = {value.number};
      return constant((*find_number_op("_operator.neg"))(Numbers(numbers)));
    }
    if (take("+")) return called("_operator.pos", {nested([&] { return sign(); })});
    Expression base = atom();
    if (!take("**")) return base;
    return called("_operator.pow", {std::move(base), nested([&] { return sign(); })});
  }

  Expression atom() {
    if (take("(")) {
      Expression inner = nested([&] { return choice(); });
      expect(")");
      return inner;
    }
    skip_spaces();
    if (!rest_.empty() && (is_digit(rest_.front()) || rest_.front() == '.')) return made(number());
    if (rest_.empty() || !is_letter(rest_.front())) fail("a value must stand before");
    return nested([&] { return named(); });
  }

  // A number, whole if it has neither point nor exponent.
  Expression number() {
    const bool is_whole =
        rest_.find_first_not_of("0123456789") == std::string_view::npos ||
        std::string_view(".eE").find(rest_[rest_.find_first_not_of("0123456789")]) == std::string_view::npos;
    const char* const begin = rest_.data();
    int64_t integer = 0;
    double real = 0;
    const auto [end, error] = is_whole ? std::from_chars(begin, begin + rest_.size(), integer)
                                       : std::from_chars(begin, begin + rest_.size(), real);
    if (error != std::errc()) fail("a number must have 64 bits");
    rest_.remove_prefix(end - begin);
    return constant(is_whole ? Number(integer) : Number(real));
  }

  std::string_view word() {
    size_t length = 0;
    while (length < rest_.size() && (is_letter(rest_[length]) || is_digit(rest_[length])))
      ++length;
    if (length == 0 || is_digit(rest_.front())) fail("a name must stand before");
    const std::string_view text = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return text;
  }

  std::string quoted() {
    skip_spaces();
    const char quote = rest_.empty() ? ' ' : rest_.front();
    const size_t end = quote == '\'' || quote == '"' ? rest_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail("a text must stand before");
    std::string text(rest_.substr(1, end - 1));
    if (text.find('\\') != std::string::npos) fail("a text must have no escapes, as in");
    rest_.remove_prefix(end + 1);
    return text;
  }

  Expression name(std::string text, const std::vector<PathStep>& steps = {}) {
    const size_t slot = slot_of_name_(text, steps);
    return made({.kind = Expression::Kind::kName, .slot = slot, .name = std::move(text)});
  }

  // A name, a constant or a call.
  Expression named() {
    const char* const begin = rest_.data();
    word();
    if (rest_.starts_with("[")) return source(begin);
    while (rest_.starts_with(".")) {
      rest_.remove_prefix(1);
      word();
    }
    const std::string text(begin, rest_.data());
    if (rest_.starts_with("(")) return call_of(text);
    static const std::map<std::string, Number> kConstants{
        {"True", true},         {"False", false},  {"true", true},    {"false", false},
        {"math.inf", INFINITY}, {"inf", INFINITY}, {"math.nan", NAN}, {"nan", NAN}};
    if (const auto found = kConstants.find(text); found != kConstants.end()) {
      return made(constant(found->second));
    }
    return name(text);
  }

  // What a guard reads of an input, such as L['x'][0].size()[1].
  Expression source(const char* begin) {
    std::vector<PathStep> steps;
    for (;;) {
      if (rest_.starts_with("()")) {
        rest_.remove_prefix(2);
        steps.emplace_back();
      } else if (rest_.starts_with(".")) {
        rest_.remove_prefix(1);
        steps.push_back({.key = std::string(word())});
      } else if (rest_.starts_with("[")) {
        rest_.remove_prefix(1);
        steps.push_back(index());
        if (!rest_.starts_with("]")) fail("an index must be a text or a number before");
        rest_.remove_prefix(1);
      } else {
        return name({begin, rest_.data()}, steps);
      }
    }
  }

  PathStep index() {
    if (rest_.starts_with("'") || rest_.starts_with("\"")) return {.key = quoted()};
    int64_t index = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), index);
    if (error != std::errc() || index < 0) fail("an index must be a text or a number before");
    rest_.remove_prefix(end - rest_.data());
    return {.index = index};
  }

  Expression call_of(const std::string& function) {
    expect("(");
    if (function == "Symbol" || function == "Integer" || function == "Float") return leaf(function);
    std::vector<Expression> parts;
    while (!take(")")) {
      if (!parts.empty()) expect(",");
      parts.push_back(choice());
    }
    using enum Expression::Kind;
    if (!parts.empty() && (function == "And" || function == "Or")) {
      return joined(function == "And" ? kAnd : kOr, std::move(parts));
    }
    if (parts.size() == 3 && function == "Where") return joined(kChoice, std::move(parts));
    if (parts.size() == 3 && function == "ModularIndexing") {
      return called("_operator.mod", {called("_operator.floordiv", {parts[0], parts[1]}), parts[2]});
    }
    if (parts.size() == 2 && function == "CeilDiv") {
      const Expression down = called("_operator.neg", {parts[0]});
      return called("_operator.neg", {called("_operator.floordiv", {down, parts[1]})});
    }
    if (function == "round") {
      const char* const name = parts.size() == 1 ? "RoundToInt" : "RoundDecimal";
      return called(name, std::move(parts));
    }
    const bool is_opaque = function.starts_with("OpaqueUnaryFn_");
    const auto found = kFunctions.find(function);
    return called(
        found != kFunctions.end() ? found->second : (is_opaque ? "math." + function.substr(14) : function),
        std::move(parts));
  }

  // Symbol('s17', positive=True), Integer(-1), Float('0.5', precision=53), after the parenthesis.
  Expression leaf(const std::string& function) {
    std::optional<Expression> value;
    if (function == "Symbol") {
      value = name(quoted());
    } else if (function == "Integer") {
      value = nested([&] { return sign(); });
    } else {
      const std::string text = quoted();
      double real = 0;
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, real);
      if (error != std::errc() || stop != end) fail("a float must stand before");
      value = made(constant(real));
    }
    while (take(",")) {  // what sympy knows of it
      skip_spaces();
      word();
      expect("=");
      skip_spaces();
      if (!rest_.empty() && is_digit(rest_.front())) {
        number();
      } else {
        word();
      }
    }
    expect(")");
    return *value;
  }

  std::string_view rest_;
  const SlotOfName& slot_of_name_;
  int nesting_ = 0, count_ = 0;
};

// Return the operator that stands between the parts; none if they are the arguments of a call.
std::optional<std::string> infix_of(const Expression& expression) {
  if (expression.kind == Expression::Kind::kAnd) return "and";
  if (expression.kind == Expression::Kind::kOr) return "or";
  if (expression.name == "_operator.pow") return "**";
  for (const auto& level : kLevels) {
    for (const Operator& one : level) {
      if (expression.name == one.function) return std::string(one.text);
    }
  }
  return {};
}

}  // namespace

Expression parse_expression(std::string_view text, const SlotOfName& slot_of_name) {
  try {
    return Parser(text, slot_of_name).whole();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("the expression " + std::string(text.substr(0, 200)) +
                             " cannot be evaluated: " + error.what());
  }
}

Expression constant(Number number) {
  return {.number = number};
}

Expression call(const std::string& function, std::vector<Expression> parts) {
  const NumberOp* const op = find_number_op(function);
  if (op == nullptr) throw std::runtime_error("this library has no function " + function);
  static const std::vector<std::string> kFolded{"_operator.add", "_operator.mul", "torch.sym_max",
                                                "torch.sym_min"};
  const bool is_folded = std::ranges::find(kFolded, function) != kFolded.end() && parts.size() > 2;
  if (parts.size() != op->count && !is_folded) {
    throw std::runtime_error(function + " must have " + std::to_string(op->count) + " arguments, got " +
                             std::to_string(parts.size()));
  }
  return {.kind = Expression::Kind::kCall, .name = function, .op = op, .parts = std::move(parts)};
}

Number evaluate(const Expression& expression, std::span<const int64_t> values) {
  const auto& parts = expression.parts;
  const auto value_of = [&](size_t i) { return evaluate(parts[i], values); };
  switch (expression.kind) {
    case Expression::Kind::kNumber:
      return expression.number;
    case Expression::Kind::kName:
      return values[expression.slot];
    case Expression::Kind::kChoice:
      return value_of(is_true(value_of(0)) ? 1 : 2);
    case Expression::Kind::kAnd:
    case Expression::Kind::kOr: {
      const bool decides = expression.kind == Expression::Kind::kOr;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (is_true(value_of(i)) == decides) return decides;
      }
      return !decides;
    }
    case Expression::Kind::kCall:
      break;
  }
  Number numbers[3];
  const size_t count = expression.op->count;
  for (size_t i = 0; i < count; ++i) {
    numbers[i] = value_of(i);
  }
  Number result = (*expression.op)(Numbers(numbers, count));
  for (size_t i = count; i < parts.size(); ++i) {
    numbers[0] = result;
    numbers[1] = value_of(i);
    result = (*expression.op)(Numbers(numbers, count));
  }
  return result;
}

std::string text_of(const Expression& expression, const std::function<std::string(size_t slot)>& name_of) {
  using enum Expression::Kind;
  if (expression.kind == kNumber) return text_of(expression.number);
  if (expression.kind == kName) return name_of(expression.slot);
  std::vector<std::string> parts;
  for (const Expression& part : expression.parts) {
    const std::string text = text_of(part, name_of);
    const bool is_closed =
        part.kind == kNumber || part.kind == kName || (part.kind == kCall && !infix_of(part));
    parts.push_back(is_closed ? text : '(' + text + ')');
  }
  if (expression.kind == kChoice) return parts[1] + " if " + parts[0] + " else " + parts[2];
  std::string list;
  for (const std::string& part : parts) {
    if (!list.empty()) list += infix_of(expression) ? " " + *infix_of(expression) + " " : ", ";
    list += part;
  }
  if (infix_of(expression)) return list;
  std::string function = expression.name.substr(expression.name.rfind('.') + 1);
  if (function.starts_with("sym_")) function.erase(0, 4);  // max for torch.sym_max
  return function + '(' + list + ')';
}

void each_name(const Expression& expression, const std::function<void(const Expression& name)>& function) {
  if (expression.kind == Expression::Kind::kName) function(expression);
  for (const Expression& part : expression.parts) {
    each_name(part, function);
  }
}

}  // namespace lensbox
