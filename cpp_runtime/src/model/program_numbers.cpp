#include "model/program_numbers.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <map>

namespace lensbox {
namespace {

bool is_real(const Number& number) {
  return std::holds_alternative<double>(number);
}

double as_real(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

// Return an int or a bool as an int.
int64_t as_whole(const Number& number) {
  TORCH_CHECK(!is_real(number), "a number must be an int, got ", text_of(number));
  return std::holds_alternative<bool>(number) ? int64_t{std::get<bool>(number)} : std::get<int64_t>(number);
}

void require_nonzero(bool is_nonzero) {
  TORCH_CHECK(is_nonzero, "a divisor must not be zero");
}

// --- ints ---

using Whole = int64_t;

int64_t within_64_bits(bool is_beyond, int64_t value) {
  TORCH_CHECK(!is_beyond, "an int must be within 64 bits");
  return value;
}

int64_t add(Whole a, Whole b) {
  int64_t sum = 0;
  const bool is_beyond = __builtin_add_overflow(a, b, &sum);
  return within_64_bits(is_beyond, sum);
}

int64_t subtract(Whole a, Whole b) {
  int64_t difference = 0;
  const bool is_beyond = __builtin_sub_overflow(a, b, &difference);
  return within_64_bits(is_beyond, difference);
}

int64_t multiply(Whole a, Whole b) {
  int64_t product = 0;
  const bool is_beyond = __builtin_mul_overflow(a, b, &product);
  return within_64_bits(is_beyond, product);
}

int64_t remainder(Whole a, Whole b) {
  require_nonzero(b != 0);
  const int64_t rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t floor_divide(Whole a, Whole b) {
  require_nonzero(b != 0);
  if (b == -1) return subtract(0, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Return the double next to a / b, the even one of two.
double divide(Whole a, Whole b) {
  require_nonzero(b != 0);
  constexpr int64_t kExact = int64_t{1} << 53;
  if (std::abs(a / 2) < kExact / 2 && std::abs(b / 2) < kExact / 2) {
    return static_cast<double>(a) / static_cast<double>(b);
  }
  const auto size = [](Whole x) { return x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : uint64_t(x); };
  const uint64_t above = size(a), below = size(b);
  // A quotient of at least 55 bits, the last of which says whether anything follows, rounds as the whole.
  const int shift =
      std::max(0, 56 + static_cast<int>(std::bit_width(below)) - static_cast<int>(std::bit_width(above)));
  const auto shifted = static_cast<unsigned __int128>(above) << shift;
  const auto quotient = static_cast<uint64_t>(shifted / below) | uint64_t{shifted % below != 0};
  const double value = std::ldexp(static_cast<double>(quotient), -shift);
  return (a < 0) != (b < 0) ? -value : value;
}

int64_t power(Whole base, Whole exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  int64_t result = 1;  // with any other base but -1, a large exponent ends beyond 64 bits
  for (uint64_t rest = exponent; rest != 0; rest /= 2) {
    if (rest % 2 == 1) result = multiply(result, base);
    if (rest > 1) base = multiply(base, base);
  }
  return result;
}

int64_t shift_left(Whole a, Whole count) {
  TORCH_CHECK(count >= 0, "a shift must not be negative, got ", count);
  if (a == 0) return 0;
  return within_64_bits(count >= 63, count < 63 ? multiply(a, int64_t{1} << count) : 0);
}

int64_t shift_right(Whole a, Whole count) {
  TORCH_CHECK(count >= 0, "a shift must not be negative, got ", count);
  return a >> std::min<int64_t>(count, 63);
}

// --- floats ---

double add(double a, double b) {
  return a + b;
}
double subtract(double a, double b) {
  return a - b;
}
double multiply(double a, double b) {
  return a * b;
}

double remainder(double a, double b) {
  require_nonzero(b != 0);
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_divide(double a, double b) {
  require_nonzero(b != 0);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

double divide(double a, double b) {
  require_nonzero(b != 0);
  return a / b;
}

double power(double base, double exponent) {
  const bool is_finite = std::isfinite(base) && std::isfinite(exponent);
  require_nonzero(base != 0 || exponent >= 0 || !is_finite);
  const double result = std::pow(base, exponent);
  const bool is_complex = is_finite && base < 0 && exponent != std::floor(exponent);
  TORCH_CHECK(!is_complex && (!is_finite || std::isfinite(result)), "a power must be a real number, got ",
              base, " ** ", exponent);
  return result;
}

Number whole_of(double value) {
  TORCH_CHECK(value >= -0x1p63 && value < 0x1p63, "a number must be an int within 64 bits, got ", value);
  return static_cast<int64_t>(value);
}

// --- functions of both ---

// Call the function of floats if an argument is a float.
template <int64_t (*whole)(Whole, Whole), double (*real)(double, double)>
Number of_two(Numbers x) {
  if (is_real(x[0]) || is_real(x[1])) return real(as_real(x[0]), as_real(x[1]));
  return whole(as_whole(x[0]), as_whole(x[1]));
}

template <int64_t (*whole)(Whole, Whole)>
Number of_ints(Numbers x) {
  return whole(as_whole(x[0]), as_whole(x[1]));
}

// Bits of two ints, or a truth of two truths.
template <class Bits>
Number of_bits(Numbers x, Bits bits) {
  const int64_t value = bits(as_whole(x[0]), as_whole(x[1]));
  if (std::holds_alternative<bool>(x[0]) && std::holds_alternative<bool>(x[1])) return value != 0;
  return value;
}

Number true_divide(Numbers x) {
  if (is_real(x[0]) || is_real(x[1])) return divide(as_real(x[0]), as_real(x[1]));
  return divide(as_whole(x[0]), as_whole(x[1]));
}

Number power_of(Numbers x) {
  if (!is_real(x[0]) && !is_real(x[1]) && as_whole(x[1]) >= 0) return power(as_whole(x[0]), as_whole(x[1]));
  return power(as_real(x[0]), as_real(x[1]));
}

// torch.sym_max and sym_min: the first if the second is not beyond it; a float if one of them is.
Number chosen(Numbers x, bool is_second) {
  const Number& value = x[is_second ? 1 : 0];
  if (is_real(x[0]) || is_real(x[1])) return as_real(value);
  if (std::holds_alternative<bool>(value)) return value;
  return as_whole(value);
}

template <double (*round)(double)>
Number whole_by(Numbers x) {
  return is_real(x[0]) ? whole_of(round(as_real(x[0]))) : as_whole(x[0]);
}

// Round to decimals: of the exact value, a half to the even digit.
Number round_to(Numbers x) {
  const int64_t digits = as_whole(x[1]);
  TORCH_CHECK(digits >= 0 && digits <= 100, "a rounding must be to 0 to 100 decimals, got ", digits);
  if (!is_real(x[0])) return as_whole(x[0]);
  const double value = as_real(x[0]);
  if (!std::isfinite(value)) return value;
  char text[512];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), value);
  return std::strtod(text, nullptr);
}

// Python's math raises an exception where C gives NaN or infinity.
template <double (*function)(double)>
Number of_math(Numbers x) {
  const double value = as_real(x[0]), result = function(value);
  const bool is_nan = std::isnan(result) && !std::isnan(value);
  const bool is_infinite = std::isinf(result) && std::isfinite(value);
  TORCH_CHECK(!is_nan && !is_infinite, "a number must be in the domain of the function, got ", text_of(x[0]));
  return result;
}

const std::map<std::string, NumberOp>& all_ops() {
  static const std::map<std::string, NumberOp> kOps{
      {"_operator.add", {2, of_two<add, add>}},
      {"_operator.sub", {2, of_two<subtract, subtract>}},
      {"_operator.mul", {2, of_two<multiply, multiply>}},
      {"_operator.floordiv", {2, of_two<floor_divide, floor_divide>}},
      {"_operator.mod", {2, of_two<remainder, remainder>}},
      {"_operator.truediv", {2, true_divide}},
      {"_operator.pow", {2, power_of}},
      {"_operator.neg",
       {1, [](Numbers x) { return is_real(x[0]) ? Number(-as_real(x[0])) : subtract(0, as_whole(x[0])); }}},
      {"_operator.pos", {1, [](Numbers x) { return is_real(x[0]) ? x[0] : as_whole(x[0]); }}},
      {"_operator.lshift", {2, of_ints<shift_left>}},
      {"_operator.rshift", {2, of_ints<shift_right>}},
      {"_operator.and_", {2, [](Numbers x) { return of_bits(x, std::bit_and()); }}},
      {"_operator.or_", {2, [](Numbers x) { return of_bits(x, std::bit_or()); }}},
      {"_operator.eq", {2, [](Numbers x) { return Number(compare(x[0], x[1]) == 0); }}},
      {"_operator.ne", {2, [](Numbers x) { return Number(compare(x[0], x[1]) != 0); }}},
      {"_operator.lt", {2, [](Numbers x) { return Number(compare(x[0], x[1]) < 0); }}},
      {"_operator.le", {2, [](Numbers x) { return Number(compare(x[0], x[1]) <= 0); }}},
      {"_operator.gt", {2, [](Numbers x) { return Number(compare(x[0], x[1]) > 0); }}},
      {"_operator.ge", {2, [](Numbers x) { return Number(compare(x[0], x[1]) >= 0); }}},
      {"torch.sym_not", {1, [](Numbers x) { return Number(!is_true(x[0])); }}},
      {"torch.sym_ite", {3, [](Numbers x) { return is_true(x[0]) ? x[1] : x[2]; }}},
      {"torch.sym_max", {2, [](Numbers x) { return chosen(x, compare(x[1], x[0]) > 0); }}},
      {"torch.sym_min", {2, [](Numbers x) { return chosen(x, compare(x[1], x[0]) < 0); }}},
      {"torch.sym_float", {1, [](Numbers x) { return Number(as_real(x[0])); }}},
      {"torch.sym_int", {1, whole_by<std::trunc>}},
      {"torch.sym_sqrt", {1, of_math<std::sqrt>}},
      {"Abs",
       {1,
        [](Numbers x) {
          if (is_real(x[0])) return Number(std::abs(as_real(x[0])));
          return Number(as_whole(x[0]) < 0 ? subtract(0, as_whole(x[0])) : as_whole(x[0]));
        }}},
      {"math.trunc", {1, whole_by<std::trunc>}},
      {"math.floor", {1, whole_by<std::floor>}},
      {"math.ceil", {1, whole_by<std::ceil>}},
      {"RoundToInt", {1, whole_by<std::nearbyint>}},  // a half to the even int
      {"RoundDecimal", {2, round_to}},
      {"math.sqrt", {1, of_math<std::sqrt>}},
      {"math.sin", {1, of_math<std::sin>}},
      {"math.sinh", {1, of_math<std::sinh>}},
      {"math.asin", {1, of_math<std::asin>}},
      {"math.cos", {1, of_math<std::cos>}},
      {"math.cosh", {1, of_math<std::cosh>}},
      {"math.acos", {1, of_math<std::acos>}},
      {"math.tan", {1, of_math<std::tan>}},
      {"math.tanh", {1, of_math<std::tanh>}},
      {"math.atan", {1, of_math<std::atan>}},
      {"math.log2", {1, of_math<std::log2>}},
  };
  return kOps;
}

}  // namespace

Number number_of(const c10::IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  TORCH_CHECK(value.isDouble(), "a number must be a bool, an int or a float, got ", value.tagKind());
  return value.toDouble();
}

bool is_true(const Number& number) {
  return as_real(number) != 0;
}

std::partial_ordering compare(const Number& left, const Number& right) {
  if (is_real(left) && is_real(right)) return as_real(left) <=> as_real(right);
  if (!is_real(left) && !is_real(right)) return as_whole(left) <=> as_whole(right);
  if (is_real(left)) return 0 <=> compare(right, left);
  const double real = as_real(right);
  if (std::isnan(real)) return std::partial_ordering::unordered;
  if (real >= 0x1p63) return std::partial_ordering::less;
  if (real < -0x1p63) return std::partial_ordering::greater;
  const auto order = as_whole(left) <=> static_cast<int64_t>(real);
  return order == 0 ? std::trunc(real) <=> real : order;
}

std::string text_of(const Number& number) {
  if (std::holds_alternative<bool>(number)) return std::get<bool>(number) ? "True" : "False";
  if (!is_real(number)) return std::to_string(as_whole(number));
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, as_real(number)).ptr};
}

Number NumberOp::operator()(Numbers given) const {
  TORCH_CHECK(given.size() == count, "a function of ", count, " numbers got ", given.size());
  try {
    return calculate(given);
  } catch (c10::Error& error) {
    std::vector<std::string> numbers;
    std::ranges::transform(given, std::back_inserter(numbers),
                           [](const Number& number) { return text_of(number); });
    error.add_context("of the numbers " + c10::Join(", ", numbers));
    throw;
  }
}

c10::IValue NumberOp::operator()(const std::vector<c10::IValue>& given) const {
  std::vector<Number> numbers;
  std::ranges::transform(given, std::back_inserter(numbers), number_of);
  const auto as_value = [](auto value) { return c10::IValue(value); };
  return std::visit(as_value, (*this)(Numbers(numbers)));
}

const NumberOp* find_number_op(const std::string& name) {
  const auto found = all_ops().find(name);
  return found == all_ops().end() ? nullptr : &found->second;
}

}  // namespace lensbox
