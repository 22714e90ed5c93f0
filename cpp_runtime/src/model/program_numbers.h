#pragma once

// The calculations with sizes of tensors that torch.export writes between the operators. Comparisons are
// left out: only assertions need them.

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace lensbox {

// Numbers are doubles, which hold every size exactly.
struct NumberOp {
  enum class Result { kAsArguments, kWhole, kReal };  // kAsArguments: whole if all arguments are

  double (*calculate)(double a, double b);  // a function of one number ignores b
  Result result = Result::kAsArguments;

  // Throws c10::Error for a whole result out of range, such as after a division by zero.
  c10::IValue operator()(const c10::IValue& a, const c10::IValue& b) const {
    const double value = calculate(a.toScalar().toDouble(), b.toScalar().toDouble());
    const bool is_real =
        result == Result::kAsArguments ? a.isDouble() || b.isDouble() : result == Result::kReal;
    if (is_real) return value;
    TORCH_CHECK(std::abs(value) < 0x1p53, "a size must be below 2^53, got ", value);
    return static_cast<int64_t>(value);
  }
};

// Return the function of a name such as "_operator.floordiv"; null if there is none.
inline const NumberOp* find_number_op(const std::string& name) {
  using enum NumberOp::Result;
  static const std::map<std::string, NumberOp> kOps{
      {"_operator.add", {[](double a, double b) { return a + b; }}},
      {"_operator.sub", {[](double a, double b) { return a - b; }}},
      {"_operator.mul", {[](double a, double b) { return a * b; }}},
      {"_operator.neg", {[](double a, double) { return -a; }}},
      {"_operator.floordiv", {[](double a, double b) { return std::floor(a / b); }}},
      {"_operator.mod", {[](double a, double b) { return a - b * std::floor(a / b); }}},
      {"_operator.truediv", {[](double a, double b) { return a / b; }, kReal}},
      {"torch.sym_max", {[](double a, double b) { return std::max(a, b); }}},
      {"torch.sym_min", {[](double a, double b) { return std::min(a, b); }}},
      {"torch.sym_float", {[](double a, double) { return a; }, kReal}},
      {"math.trunc", {[](double a, double) { return std::trunc(a); }, kWhole}},
      {"math.floor", {[](double a, double) { return std::floor(a); }, kWhole}},
      {"math.ceil", {[](double a, double) { return std::ceil(a); }, kWhole}},
  };
  const auto found = kOps.find(name);
  return found == kOps.end() ? nullptr : &found->second;
}

}  // namespace lensbox
