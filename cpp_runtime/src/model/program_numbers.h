#pragma once

// Numbers as Python calculates with them: the sizes between the operators of a graph, and the rules of its
// inputs. docs.python.org/3/library/stdtypes.html#numeric-types-int-float-complex

#include <ATen/core/ivalue.h>

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace lensbox {

// Python's bool, int and float. An int has 64 bits.
using Number = std::variant<bool, int64_t, double>;
using Numbers = std::span<const Number>;

// A function of numbers.
struct NumberOp {
  size_t count;  // of arguments
  Number (*calculate)(Numbers x);

  // Calculate. Throws c10::Error, with the rule and the numbers, where Python raises an exception or gives a
  // complex number, and for an int beyond 64 bits.
  Number operator()(Numbers given) const;
  c10::IValue operator()(const std::vector<c10::IValue>& given) const;
};

// Return the function of a name such as "_operator.floordiv", "math.sqrt", or torch's "RoundToInt"; null if
// there is none.
const NumberOp* find_number_op(const std::string& name);

// Return a number as text that tells it from all others.
std::string text_of(const Number& number);

// Return a value that is a bool, an int or a double. Throws c10::Error for others.
Number number_of(const c10::IValue& value);

// Return whether Python takes a number for true.
bool is_true(const Number& number);

// Compare as Python does, without rounding. NaN is unordered.
std::partial_ordering compare(const Number& left, const Number& right);

}  // namespace lensbox
