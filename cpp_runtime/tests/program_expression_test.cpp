#include "model/program_expression.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "helpers.h"

namespace {

using lensbox::Expression;
using lensbox::Number;

const std::vector<int64_t> kValues{10, 4, 7};

size_t slot_of(const std::string& name, const std::vector<lensbox::PathStep>& /*steps*/) {
  static const std::map<std::string, size_t> kSlots{
      {"s17", 0}, {"s3", 1}, {"u0", 2}, {"L['x'].size()[0]", 0}, {"L['y'][1].a['k'].size()[0]", 1}};
  const auto found = kSlots.find(name);
  if (found == kSlots.end()) throw std::runtime_error("no size has the name " + name);
  return found->second;
}

Number value_of(const std::string& text) {
  return evaluate(lensbox::parse_expression(text, slot_of), kValues);
}

TEST(Expressions, AreEvaluatedAsPythonDoes) {
  const std::pair<const char*, Number> cases[] = {
      {"2*s17", int64_t{20}},
      {"-2 + s17", int64_t{8}},
      {"(-2) + L['x'].size()[0] >= 8", true},
      {"L['x'].size()[0] == (2*L['y'][1].a['k'].size()[0])", false},
      {"(L['x'].size()[0] % 2) == 0", true},
      {"-7 // 2", int64_t{-4}},
      {"-2**2", int64_t{-4}},
      {"2**-1", 0.5},
      {"2**3**2", int64_t{512}},
      {"10 - 4 - 3", int64_t{3}},
      {"100 // 7 * 2", int64_t{28}},
      {"1 + 2 << 1 & 7 | 8", int64_t{14}},
      {"not (s17 > 3)", false},
      {"not s17 > 3 or True", true},
      {"s17 > 3 and s3 < 4 or u0 == 7", true},
      {"s3 == 0 or 8 % s3 == 0", true},
      {"s3 != 4 and 1 // (s3 - 4) > 0", false},  // as Python, it stops before the division by zero
      {"1 if s17 < 3 else 2 if s3 < 5 else 3", int64_t{2}},
      {"max(1, s3, s17)", int64_t{10}},
      {"min(s3, 0.5)", 0.5},
      {"math.trunc(0.7*torch.sym_float(L['x'].size()[0])) == 7", true},
      {"((torch.sym_float(s17)) / 1.4142135623730951)", 10 / 1.4142135623730951},
      {"math.floor(-0.5) + math.ceil(1e0) + round(2.5) + abs(-3)", int64_t{-1 + 1 + 2 + 3}},
      {"torch._sym_sqrt(s3)", 2.0},
      {"s17 < math.inf and s17 > -math.inf", true},
      {"Mul(Integer(32), Symbol('s17', positive=True, integer=True))", int64_t{320}},
      {"Add(Mul(Integer(3), Symbol('s3', integer=True)), Integer(-1), Integer(5))", int64_t{16}},
      {"FloorDiv(Add(Symbol('s17'), Integer(-1)), Integer(2))", int64_t{4}},
      {"Mul(Float('0.69999999999999996', precision=53), ToFloat(Symbol('s17')))", 7.0},
      {"Max(Symbol('s3'), Symbol('s17'), Integer(12))", int64_t{12}},
      {"And(GreaterThan(Symbol('u0', integer=True), Integer(7)), Not(Equality(Symbol('u0'), Integer(8))))",
       true},
      {"Or(StrictLessThan(Symbol('u0'), Integer(7)), false)", false},
      {"PythonMod(Integer(-7), Integer(3))", int64_t{2}},
      {"CeilDiv(s17, 4)", int64_t{3}},
      {"ModularIndexing(s17, 2, 3)", int64_t{2}},
      {"Where(s17 > 3, s3, 0)", int64_t{4}},
      {"IntTrueDiv(s17, 4)", 2.5},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(value_of(text), expected) << text;
  }
}

TEST(Expressions, AreRefusedWithTheReason) {
  const auto refusal = [](const std::string& text, const std::string& reason) {
    expect_error<std::runtime_error>([&] { lensbox::parse_expression(text, slot_of); },
                                     {("the expression " + text.substr(0, 200)).c_str(), reason.c_str()});
  };
  refusal("", "a value must stand");
  refusal("s17 +", "a value must stand");
  refusal("s17 s3", "it ends before \"s3\"");
  refusal("1 < s17 < 3", "a comparison must have two sides");
  refusal("s99", "no size has the name s99");
  refusal("L['x'].size()[", "an index must be");
  refusal("L['x", "a text must stand");
  refusal("__import__('os').system('true')", "a value must stand before \"'os'");
  refusal("exec(s17)", "no function exec");
  refusal("FloorDiv(s17)", "must have 2 arguments, got 1");
  refusal("math.trunc(1, 2)", "must have 1 arguments, got 2");
  refusal("9223372036854775808", "64 bits");
  refusal("1e999", "64 bits");
  refusal("[s17 for s17 in s17]", "a value must stand");
  refusal("lambda: 1", "no size has the name lambda");
  refusal("Symbol('a\\n')", "no escapes");
  refusal(std::string(1000, '('), "nested too deeply");
  refusal(std::string(1000, '-') + "1", "nested too deeply");
  std::string sum = "1", list = "max(1";
  for (int i = 0; i < 20'000; ++i) {
    sum += "+1";
    list += ",1";
  }
  refusal(sum, "too large");
  refusal(list + ")", "too large");
}

TEST(Expressions, ThrowWhereTheyHaveNoValue) {
  for (const char* text : {"s17 // 0", "s17 % (s3 - 4)", "9223372036854775807 + s3", "s17 ** 30",
                           "math.trunc(math.inf)", "torch._sym_sqrt(-s3)", "1 << 64", "0 ** -1"}) {
    EXPECT_THROW(value_of(text), c10::Error) << text;
  }
}

TEST(Expressions, GiveTheStepsToWhatAGuardReads) {
  std::string text;
  const auto note = [&](const std::string&, const std::vector<lensbox::PathStep>& steps) -> size_t {
    for (const lensbox::PathStep& step : steps) {
      text += step.key ? '<' + *step.key + '>' : step.index ? std::to_string(*step.index) : "()";
    }
    return 0;
  };
  lensbox::parse_expression("L['a].b'][12].c[\"d'[0]\"].size()[1] > s17", note);
  EXPECT_EQ(text, "<a].b>12<c><d'[0]><size>()1");
}

TEST(Expressions, AreShownAsPython) {
  const auto shown = [](const std::string& text) {
    return text_of(lensbox::parse_expression(text, slot_of),
                   [](size_t slot) { return "xyz"[slot] + std::string(".n"); });
  };
  EXPECT_EQ(shown("L['x'].size()[0] == (2*s3)"), "x.n == (2 * y.n)");
  EXPECT_EQ(shown("Add(Symbol('s17'), Mul(Integer(3), Symbol('u0')), Integer(-1))"), "x.n + (3 * z.n) + -1");
  EXPECT_EQ(shown("max(s17, 2) // 3 if not s3 else 0.5"), "(max(x.n, 2) // 3) if not(y.n) else 0.5");
}

}  // namespace
