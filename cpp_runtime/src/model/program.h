#pragma once

// A loaded graph of torch.export: program_reader.cpp makes it, program.cpp runs it.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <lensbox/torch/program.h>

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "model/enqueued_work.h"
#include "model/program_numbers.h"
#include "model/program_operators.h"

namespace lensbox {

// A value of a run by its number (first the inputs, then the results of the nodes), or a constant, such as a
// weight.
struct GraphItem {
  int value = -1;  // -1: a constant
  c10::IValue constant;

  bool is_constant() const { return value < 0; }
};

struct GraphArgument {
  size_t position;
  c10::TypePtr type;  // of the items, as the op declares it
  bool is_list;       // else there is one item
  std::vector<GraphItem> items;
};

struct GraphResult {
  bool is_list;             // of tensors
  std::vector<int> values;  // one for each item
};

// A call of an operator, or a calculation with sizes.
struct GraphNode {
  std::string name;
  std::optional<c10::OperatorHandle> op;
  OperatorGuard guard = nullptr;
  const NumberOp* number_op = nullptr;
  std::vector<c10::IValue> arguments;  // with gaps for `filled`
  std::vector<GraphArgument> filled;   // the arguments that need values of the run
  std::vector<GraphResult> results;
  std::vector<int> dropped;  // values that no later node needs

  // Return the values that the node takes, some perhaps twice.
  std::vector<int> taken() const;
};

struct GraphInput {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> sizes;  // -1 - i: the free size i of the graph
};

struct FreeSize {
  std::string name;
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

class Program::Graph {
 public:
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given) const;

  c10::Device device = at::kCPU;
  std::vector<GraphInput> inputs;
  std::vector<FreeSize> free_sizes;
  std::vector<GraphNode> nodes;
  std::vector<GraphItem> outputs;
  size_t value_count = 0;
  mutable EnqueuedWork work;  // behind the weights

 private:
  void check(const std::vector<at::Tensor>& given) const;
};

// Return an item for an op that takes this type: numbers become tensors and floats where the op wants them.
c10::IValue as_type(const c10::Type& type, const GraphItem& item, const std::vector<c10::IValue>& values);

// Return an argument from the values of a run.
c10::IValue filled_argument(const GraphArgument& argument, const std::vector<c10::IValue>& values);

// On a CPU, let oneDNN compute convolutions in float32 with the activations after them, with packed weights.
// is_channels_last: of each value of a run, whether it was traced as a tensor [B, C, H, W] of this layout.
void fuse_convolutions(Program::Graph& graph, const std::vector<bool>& is_channels_last);

// Load a graph from an archive in memory, whose operators are registered already. bytes: uint8 [n] on the
// CPU, which the weights share. has_seal: whether a seal was checked, so that check sums tell nothing new.
// Throws ArtifactError, naming the file.
Program read_program(const std::filesystem::path& file, const at::Tensor& bytes, const std::string& graph,
                     c10::Device device, bool has_seal);

}  // namespace lensbox
