#pragma once

// Expressions of sizes as torch.export writes them into a file: guards such as "L['x'].size()[0] % 2 == 0",
// sympy's "2*s17", and its constructors, such as "Mul(Integer(2), Symbol('s17', positive=True))".

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/program_numbers.h"

namespace lensbox {

struct Expression {
  enum class Kind { kNumber, kName, kCall, kAnd, kOr, kChoice };

  Kind kind = Kind::kNumber;
  Number number = int64_t{0};          // of kNumber
  size_t slot = 0;                     // of kName: of its value
  std::string name = {};               // of kName as written; of kCall the function, such as "_operator.add"
  const NumberOp* op = nullptr;        // of kCall. Of more numbers than it takes: of two, again and again
  std::vector<Expression> parts = {};  // arguments; of kChoice condition, value, other value
  int depth = 1;
};

// A step to what a guard reads of an input: [1], ['key'] or .key; without both, ().
struct PathStep {
  std::optional<std::string> key = {};
  std::optional<int64_t> index = {};
};

// Returns the slot of a name: "s17", or "L['x'].size()[0]" with the steps after the L. Throws
// std::runtime_error for an unknown name.
using SlotOfName = std::function<size_t(const std::string& name, const std::vector<PathStep>& steps)>;

// Read an expression. Throws std::runtime_error, with the expression and the reason, for whatever evaluate
// could not compute, and for more than 10,000 parts or 100 levels.
Expression parse_expression(std::string_view text, const SlotOfName& slot_of_name);

// Compute an expression from the values of its names, by slots. Throws c10::Error as NumberOp does.
Number evaluate(const Expression& expression, std::span<const int64_t> values);

// Return a call of a function of find_number_op.
Expression call(const std::string& function, std::vector<Expression> parts);
Expression constant(Number number);

// Return the expression as Python would write it. name_of: of a slot.
std::string text_of(const Expression& expression, const std::function<std::string(size_t slot)>& name_of);

// Call a function with each name in the expression.
void each_name(const Expression& expression, const std::function<void(const Expression& name)>& function);

}  // namespace lensbox
