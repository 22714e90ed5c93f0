#pragma once

// A loaded graph of torch.export: program_reader.cpp makes it, program.cpp runs it.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <lensbox/torch/program.h>

#include <filesystem>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "model/enqueued_work.h"
#include "model/program_numbers.h"
#include "model/program_operators.h"
#include "model/program_sizes.h"

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

// What the first argument of a node must be, such as torch._check of tensor.item(): true, or within a range.
struct DataRule {
  std::string text;
  bool is_range = false;
  SizeRange range = {};
  std::vector<std::string> names = {};  // of the further arguments, which the message shows

  // Throw InputError, with the rule and the values, unless the arguments obey it.
  void check(const std::vector<c10::IValue>& arguments) const;
};

// A call of an operator, a calculation with sizes, or a rule.
struct GraphNode {
  std::string name;
  std::optional<c10::OperatorHandle> op = {};
  OperatorGuard guard = nullptr;
  const NumberOp* number_op = nullptr;
  std::optional<DataRule> rule = {};
  std::vector<c10::IValue> arguments = {};  // with gaps for `filled`
  std::vector<GraphArgument> filled = {};   // the arguments that need values of the run
  std::vector<size_t> written = {};         // the places of the arguments that the op writes to
  std::vector<GraphResult> results = {};
  std::vector<int> dropped = {};  // values that no later node needs

  // Return the values that the node takes, some perhaps twice.
  std::vector<int> taken() const;
};

class Program::Graph {
 public:
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given) const;

  c10::Device device = at::kCPU;
  std::vector<GraphInput> inputs;
  SizeRules size_rules;
  std::unordered_set<const void*> weights;  // storages_of_constants
  std::vector<GraphNode> nodes;
  std::vector<GraphItem> outputs;
  size_t value_count = 0;
  mutable EnqueuedWork work;  // behind the weights

 private:
  void check(const std::vector<at::Tensor>& given) const;
};

// --- program_writes.cpp: what a run must not change, because other runs and the caller see it ---

inline constexpr const char* kMustNotChange = "the graph must not change inputs or weights";

// Return an identity of a tensor's memory; null if it has none.
const void* storage_of(const at::Tensor& tensor);

// Return the storages of the weights and other constants that the graph holds. A weight that it no longer
// holds, such as one that oneDNN has packed, is not among them: a result of a run may get its address.
std::unordered_set<const void*> storages_of_constants(const Program::Graph& graph);

// Return the places of the arguments that a node's op writes to.
std::vector<size_t> written_arguments(const GraphNode& node);

// Throw ArtifactError if a node writes to a storage of the inputs or weights, whatever its schema says of
// views.
void check_written(const GraphNode& node, const std::vector<c10::IValue>& arguments,
                   const std::unordered_set<const void*>& weights, const std::vector<at::Tensor>& inputs);

// --- the values of a run ---

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
