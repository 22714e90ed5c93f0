#include <torch/csrc/jit/runtime/graph_executor.h>

#include "model/methods.h"

namespace lensbox {

ScriptMethods::ScriptMethods(torch::jit::Module module) : module_(std::move(module)) {}

bool ScriptMethods::has(const std::string& name) const {
  return module_.find_method(name).has_value();
}

c10::IValue ScriptMethods::call(const std::string& name, std::vector<c10::IValue> arguments) const {
  const torch::jit::GraphOptimizerEnabledGuard without_profiling(false);
  return module_.get_method(name)(std::move(arguments));
}

}  // namespace lensbox
