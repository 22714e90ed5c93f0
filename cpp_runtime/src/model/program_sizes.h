#pragma once

// What torch.export noted about the sizes of a graph's inputs: equal sizes, such as 2*n rows and n rows,
// ranges, and guards, which the code of the network compared or checked while it was traced. A run with other
// sizes would compute another branch than the network does.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/program_expression.h"
#include "model/program_json.h"

namespace lensbox {

struct GraphInput {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> sizes;           // -1: a free size
  std::vector<std::string> free_sizes;  // of each size: its expression in the file; "" if it is not free
};

// Limits of an integer.
struct SizeRange {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
};

// A number that an input has.
struct SizeFact {
  enum class Kind { kSize, kStride, kOffset };

  Kind kind = Kind::kSize;
  size_t input = 0;
  int64_t dimension = 0;
  std::string name = {};  // such as "x.shape[0]"

  bool operator==(const SizeFact&) const = default;
};

struct SizeRules {
  std::vector<SizeFact> facts;
  std::vector<Expression> rules;  // of facts; all must be true
  // Of symbols that are no sizes of inputs, such as "u0" of tensor.item().
  std::unordered_map<std::string, SizeRange> data_ranges;

  // Throw InputError, with the rule and the sizes, unless the inputs obey all rules. Their numbers of
  // dimensions must be right.
  void check(const std::vector<at::Tensor>& inputs) const;
};

// Read the rules in a file's JSON. place_of_leaf: of each input of the traced function, flattened: its place
// among `inputs`, or -1 for one that is no tensor. Throws std::runtime_error, with the expression, for a rule
// that cannot be evaluated.
SizeRules read_size_rules(const GraphJson& program, const std::vector<GraphInput>& inputs,
                          const std::vector<int64_t>& place_of_leaf);

}  // namespace lensbox
