#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace lensbox {

// The methods of an artifact by their names, whatever its file is: docs/artifact.md has their arguments and
// results. May be called from several threads at once.
class Methods {
 public:
  virtual ~Methods() = default;

  virtual bool has(const std::string& name) const = 0;

  // Of a method that is there. Throws what the method throws.
  virtual c10::IValue call(const std::string& name, std::vector<c10::IValue> arguments) const = 0;
};

}  // namespace lensbox
