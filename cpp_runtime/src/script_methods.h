#pragma once

#include <torch/csrc/jit/api/module.h>

#include "methods.h"

namespace lensbox {

// Those of a TorchScript module. They run without TorchScript's profiling executor, which would watch the
// first calls with a batch size and then compile, for each size anew; the switch is put back after the call.
class ScriptMethods final : public Methods {
 public:
  explicit ScriptMethods(torch::jit::Module module);

  bool has(const std::string& name) const override;
  c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const override;

 private:
  torch::jit::Module module_;
};

}  // namespace lensbox
