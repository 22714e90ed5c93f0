#pragma once

// The operators that a program may call: the table ops/csrc/program_operators.inc, and the caller's own.

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace lensbox {

// A check of what torch does not check, before each call. Throws c10::Error.
using OperatorGuard = void (*)(const std::vector<c10::IValue>& arguments);

// An operator of a program. rules: conditions of the table on its arguments; one must hold. guard: null if
// torch checks enough.
struct ProgramOperator {
  c10::OperatorHandle op;
  std::vector<std::string> rules;
  OperatorGuard guard;

  // Throw std::runtime_error unless the arguments obey the table. arguments: all of the schema, those that
  // are known before a run; is_known: of each.
  void check(const std::vector<c10::IValue>& arguments, const std::vector<bool>& is_known) const;
};

// Return the operator that a program's operator stands for. Throws std::runtime_error if it is neither in the
// table nor of a library that the caller named (open_op_libraries), or is not registered.
ProgramOperator find_operator(const c10::OperatorName& name);

// Return whether the table has a calculation with sizes, such as "_operator.add".
bool has_calculation(const std::string& target);

}  // namespace lensbox
