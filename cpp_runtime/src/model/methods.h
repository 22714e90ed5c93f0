#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace lensbox {

// The methods of an artifact by their names, whatever the kind of its file: docs/artifact.md has their
// arguments and results. Thread-safe.
class Methods {
 public:
  virtual ~Methods() = default;

  virtual bool has(const std::string& name) const = 0;

  // Call a method that is there. Throws what the method throws.
  virtual c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const = 0;
};

// The methods of a TorchScript module. They run without TorchScript's profiling executor, which would compile
// anew for each batch size; the switch is put back after the call.
class ScriptMethods final : public Methods {
 public:
  explicit ScriptMethods(torch::jit::Module module);

  bool has(const std::string& name) const override;
  c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const override;

 private:
  torch::jit::Module module_;
};

}  // namespace lensbox
