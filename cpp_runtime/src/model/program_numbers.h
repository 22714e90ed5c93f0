#pragma once

// The calculations with sizes of tensors that torch.export writes between the operators.

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace lensbox {

// Numbers are doubles, which hold every size exactly. True is 1.
struct NumberOp {
  // kAsArguments: real if an argument is, true or false if all arguments are, else whole.
  enum class Result { kAsArguments, kTruth, kWhole, kReal };

  size_t count;  // of arguments
  double (*calculate)(const double* x);
  Result result = Result::kAsArguments;

  // Throws c10::Error for a whole result out of range, such as after a division by zero.
  c10::IValue operator()(const std::vector<c10::IValue>& given) const {
    std::vector<double> numbers;
    for (const c10::IValue& value : given) {
      numbers.push_back(value.toScalar().toDouble());
    }
    const double value = calculate(numbers.data());
    const bool as_given = result == Result::kAsArguments;
    if (as_given ? std::ranges::any_of(given, &c10::IValue::isDouble) : result == Result::kReal) return value;
    if (as_given ? std::ranges::all_of(given, &c10::IValue::isBool) : result == Result::kTruth) {
      return value != 0;
    }
    TORCH_CHECK(std::abs(value) < 0x1p53, "a size must be below 2^53, got ", value);
    return static_cast<int64_t>(value);
  }
};

// Return the function of a name such as "_operator.floordiv"; null if there is none.
inline const NumberOp* find_number_op(const std::string& name) {
  using enum NumberOp::Result;
  using X = const double*;
  static const std::map<std::string, NumberOp> kOps{
      {"_operator.add", {2, [](X x) { return x[0] + x[1]; }}},
      {"_operator.sub", {2, [](X x) { return x[0] - x[1]; }}},
      {"_operator.mul", {2, [](X x) { return x[0] * x[1]; }}},
      {"_operator.pow", {2, [](X x) { return std::pow(x[0], x[1]); }}},
      {"_operator.neg", {1, [](X x) { return -x[0]; }}},
      {"_operator.floordiv", {2, [](X x) { return std::floor(x[0] / x[1]); }}},
      {"_operator.mod", {2, [](X x) { return x[0] - x[1] * std::floor(x[0] / x[1]); }}},
      {"_operator.truediv", {2, [](X x) { return x[0] / x[1]; }, kReal}},
      {"_operator.eq", {2, [](X x) { return double(x[0] == x[1]); }, kTruth}},
      {"_operator.ne", {2, [](X x) { return double(x[0] != x[1]); }, kTruth}},
      {"_operator.lt", {2, [](X x) { return double(x[0] < x[1]); }, kTruth}},
      {"_operator.le", {2, [](X x) { return double(x[0] <= x[1]); }, kTruth}},
      {"_operator.gt", {2, [](X x) { return double(x[0] > x[1]); }, kTruth}},
      {"_operator.ge", {2, [](X x) { return double(x[0] >= x[1]); }, kTruth}},
      {"_operator.and_", {2, [](X x) { return double(int64_t(x[0]) & int64_t(x[1])); }}},
      {"_operator.or_", {2, [](X x) { return double(int64_t(x[0]) | int64_t(x[1])); }}},
      {"torch.sym_not", {1, [](X x) { return double(x[0] == 0); }, kTruth}},
      {"torch.sym_ite", {3, [](X x) { return x[0] != 0 ? x[1] : x[2]; }}},
      {"torch.sym_max", {2, [](X x) { return std::max(x[0], x[1]); }}},
      {"torch.sym_min", {2, [](X x) { return std::min(x[0], x[1]); }}},
      {"torch.sym_float", {1, [](X x) { return x[0]; }, kReal}},
      {"torch.sym_int", {1, [](X x) { return std::trunc(x[0]); }, kWhole}},
      {"math.trunc", {1, [](X x) { return std::trunc(x[0]); }, kWhole}},
      {"math.floor", {1, [](X x) { return std::floor(x[0]); }, kWhole}},
      {"math.ceil", {1, [](X x) { return std::ceil(x[0]); }, kWhole}},
  };
  const auto found = kOps.find(name);
  return found == kOps.end() ? nullptr : &found->second;
}

}  // namespace lensbox
