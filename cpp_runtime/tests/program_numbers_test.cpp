#include "model/program_numbers.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace {

using CasesJson = nlohmann::json;
using lensbox::find_number_op;
using lensbox::Number;

// Return a number of the file, whose floats are texts.
Number number_in(const CasesJson& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return std::strtod(value.get<std::string>().c_str(), nullptr);
  return value.get<int64_t>();
}

std::optional<Number> calculated(const std::string& name, const std::vector<Number>& numbers) {
  try {
    return (*find_number_op(name))(lensbox::Numbers(numbers));
  } catch (const c10::Error&) {
    return {};
  }
}

// Return whether two numbers have the same type and value. Powers of floats differ by a bit between
// libraries.
bool is_same(const Number& one, const Number& other, bool is_power) {
  if (one.index() != other.index()) return false;
  if (!std::holds_alternative<double>(one)) return one == other;
  const double x = std::get<double>(one), y = std::get<double>(other);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (is_power && x != 0 && std::isfinite(x)) return std::abs(x - y) <= std::abs(x) * 0x1p-51;
  return x == y && std::signbit(x) == std::signbit(y);
}

void expect_python(const std::string& name, const std::vector<Number>& numbers, const CasesJson& expected) {
  const std::optional<Number> found = calculated(name, numbers);
  std::string text = name;
  for (const Number& number : numbers) {
    text += ' ' + lensbox::text_of(number);
  }
  ASSERT_EQ(found.has_value(), !expected.is_null()) << text << ", Python: " << expected;
  if (found) {
    EXPECT_TRUE(is_same(*found, number_in(expected), name == "_operator.pow"))
        << text << ": " << lensbox::text_of(*found) << ", Python: " << expected;
  }
}

// tests/helpers/number_cases.py writes the file with Python.
TEST(NumberOps, CalculateAsPythonDoes) {
  const CasesJson cases = CasesJson::parse(std::ifstream(LENSBOX_NUMBER_CASES));
  std::vector<Number> numbers;
  for (const CasesJson& value : cases.at("numbers")) {
    numbers.push_back(number_in(value));
  }
  ASSERT_GT(numbers.size(), 20U);
  for (const auto& [name, results] : cases.at("one").items()) {
    ASSERT_NE(find_number_op(name), nullptr) << name;
    for (size_t i = 0; i < numbers.size(); ++i) {
      expect_python(name, {numbers[i]}, results.at(i));
    }
  }
  for (const auto& [name, results] : cases.at("two").items()) {
    ASSERT_NE(find_number_op(name), nullptr) << name;
    for (size_t i = 0; i < numbers.size() * numbers.size(); ++i) {
      expect_python(name, {numbers[i / numbers.size()], numbers[i % numbers.size()]}, results.at(i));
    }
  }
}

TEST(NumberOps, ChooseRoundAndRefuse) {
  EXPECT_EQ(calculated("torch.sym_ite", {true, int64_t{4}, 0.5}), Number(int64_t{4}));
  EXPECT_EQ(calculated("torch.sym_ite", {false, int64_t{4}, 0.5}), Number(0.5));
  EXPECT_EQ(calculated("RoundDecimal", {2.675, int64_t{2}}), Number(2.67));
  EXPECT_EQ(calculated("RoundDecimal", {0.125, int64_t{2}}), Number(0.12));
  EXPECT_EQ(calculated("math.sin", {INFINITY}), std::nullopt);
  EXPECT_EQ(calculated("math.acos", {2.0}), std::nullopt);
  EXPECT_EQ(calculated("math.cosh", {1e4}), std::nullopt);
  EXPECT_EQ(find_number_op("_operator.xor"), nullptr);
}

// Integers are not rounded on the way to floats.
TEST(NumberOps, CompareWithoutRounding) {
  const int64_t odd = (int64_t{1} << 53) + 1;
  EXPECT_TRUE(lensbox::compare(odd, 0x1p53) > 0);
  EXPECT_TRUE(lensbox::compare(0x1p53, odd) < 0);
  EXPECT_TRUE(lensbox::compare(INT64_MAX, 0x1p63) < 0);
  EXPECT_TRUE(lensbox::compare(INT64_MIN, -0x1p63) == 0);
  EXPECT_FALSE(lensbox::compare(int64_t{0}, NAN) == 0);
}

}  // namespace
