#pragma once

// The arguments of the function that torch.export traced: which of its flattened inputs a guard means.

#include <optional>
#include <string>
#include <vector>

#include "model/program_expression.h"
#include "model/program_json.h"

namespace lensbox {

class ProgramSignature {
 public:
  // graph_module: of the file. Without a tree of arguments that this library knows, only "flat_args" are
  // found.
  explicit ProgramSignature(const GraphJson& graph_module);

  // Return the place among the flattened inputs of what a path ends in, such as ['x'][0]; none if it is no
  // input.
  std::optional<size_t> find(std::vector<PathStep> path) const;

 private:
  void read(const GraphJson& tree, const std::vector<PathStep>& path, const GraphJson& names);

  std::vector<std::vector<PathStep>> leaves_;
};

}  // namespace lensbox
