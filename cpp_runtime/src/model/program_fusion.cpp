// Convolutions and their activations as one function of oneDNN, which torch.compile calls on CPUs, too.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/op_library.h"
#include "model/program.h"

namespace lensbox {
namespace {

constexpr const char* kFused = "mkldnn::_convolution_pointwise";
constexpr const char* kPack = "mkldnn::_reorder_convolution_weight";

// oneDNN's name of an activation, whose arguments after the first are oneDNN's scalars; null if it has none.
const char* fused_name(const GraphNode& node) {
  static const std::map<std::string, const char*> kNames{
      {"aten::relu", "relu"},       {"aten::hardswish", "hardswish"},     {"aten::silu", "swish"},
      {"aten::tanh", "tanh"},       {"aten::hardsigmoid", "hardsigmoid"}, {"aten::hardtanh", "hardtanh"},
      {"aten::sigmoid", "sigmoid"}, {"aten::leaky_relu", "leaky_relu"}};
  if (!node.op || !node.op->schema().overload_name().empty()) return nullptr;
  std::string name = node.op->schema().name();
  if (name.ends_with('_')) name.pop_back();
  const auto found = kNames.find(name);
  return found == kNames.end() ? nullptr : found->second;
}

// Return the only value of the run that a node takes, if it is its first argument; else -1.
int only_input(const GraphNode& node) {
  const bool is_only =
      node.filled.size() == 1 && node.filled[0].position == 0 && node.filled[0].items.size() == 1;
  return is_only ? node.filled[0].items[0].value : -1;
}

// Return whether a node is a convolution in float32 that conv2d would not refuse: oneDNN checks less.
bool is_convolution(const GraphNode& node) {
  if (!node.op || node.op->schema().name() != "aten::conv2d" || only_input(node) < 0) return false;
  if (!node.op->schema().overload_name().empty()) return false;  // padding in words
  const at::Tensor weight = node.arguments[1].toTensor();
  const auto bias = node.arguments[2].toOptional<at::Tensor>();
  const int64_t groups = node.arguments[6].toInt();
  const auto is_pair = [&](size_t position, int64_t least) {
    const auto numbers = node.arguments[position].toIntVector();
    return numbers.size() == 2 && std::ranges::min(numbers) >= least;
  };
  return weight.scalar_type() == at::kFloat && weight.dim() == 4 && weight.numel() > 0 && groups > 0 &&
         weight.size(0) % groups == 0 && (!bias || bias->sizes() == weight.sizes().slice(0, 1)) &&
         (!bias || bias->scalar_type() == at::kFloat) && is_pair(3, 1) && is_pair(4, 0) && is_pair(5, 1);
}

using Scalars = c10::List<std::optional<at::Scalar>>;

// Return oneDNN's scalars of an activation: all its arguments after the first.
Scalars scalars_of(const GraphNode& activation) {
  Scalars scalars;
  for (size_t i = 1; i < activation.arguments.size(); ++i) {
    scalars.push_back(activation.arguments[i].toScalar());
  }
  return scalars;
}

// Return whether oneDNN's activation has NaN where torch's has it, on this CPU: its ReLU, for one, makes NaN
// 0, which would hide that a network overflows. The convolution copies one channel to many.
bool keeps_nan(const GraphNode& activation) {
  const at::Tensor values =
      at::tensor({NAN, -NAN, INFINITY, -INFINITY, -1.0F, 0.0F, 1.0F, 8.0F}).view({1, 1, 1, 8});
  const std::vector<int64_t> ones{1, 1}, zeros{0, 0};
  const at::Tensor weight = at::ones({16, 1, 1, 1}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto packed = call_op(kPack, weight, zeros, ones, ones, 1, c10::IValue());
  const auto fused = call_op(kFused, values, packed, c10::IValue(), zeros, ones, ones, 1,
                             fused_name(activation), scalars_of(activation), "");
  torch::jit::Stack stack = activation.arguments;
  stack[0] = at::conv2d(values, weight);
  activation.op->callBoxed(stack);
  return at::equal(fused.toTensor().isnan(), stack[0].toTensor().isnan());
}

// Let an activation of a tensor that nothing else needs write to it.
void write_in_place(GraphNode& activation) {
  const std::string name = activation.op->schema().name();
  if (name.ends_with('_')) return;
  const auto op = c10::Dispatcher::singleton().findSchema({name + '_', ""});
  if (!op || op->schema().arguments().size() != activation.arguments.size()) return;
  activation.op = op;
  activation.written = written_arguments(activation);
}

void use_onednn(GraphNode& node) {
  const auto given = node.arguments;  // input, weight, bias, stride, padding, dilation, groups
  const auto weight = call_op(kPack, given[1], given[4], given[3], given[5], given[6], c10::IValue());
  node.op = c10::Dispatcher::singleton().findSchema({kFused, ""});
  const c10::List<std::optional<at::Scalar>> no_scalars;
  node.arguments = {{}, weight, given[2], given[4], given[3], given[5], given[6], "none", no_scalars, ""};
}

}  // namespace

void fuse_convolutions(Program::Graph& graph, const std::vector<bool>& is_channels_last) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (!graph.device.is_cpu() || !at::globalContext().userEnabledMkldnn() ||
      !dispatcher.findSchema({kFused, ""}) || !dispatcher.findSchema({kPack, ""}))
    return;
  std::vector<int> uses(graph.value_count);
  for (const GraphItem& output : graph.outputs) {
    if (!output.is_constant()) ++uses[output.value];
  }
  for (const GraphNode& node : graph.nodes) {
    for (const int value : node.taken()) {
      ++uses[value];
    }
  }
  std::vector<GraphNode> nodes;
  bool is_open = false;               // whether the last node can take an activation
  std::map<std::string, bool> known;  // of activations with their scalars: whether oneDNN's keeps NaN
  for (GraphNode& node : graph.nodes) {
    const char* const activation = fused_name(node);
    if (is_open && activation != nullptr && only_input(node) == nodes.back().results[0].values[0] &&
        uses[only_input(node)] == 1) {
      is_open = false;
      const auto [kept, is_new] = known.try_emplace(c10::str(activation, c10::IValue(scalars_of(node))));
      if (is_new) kept->second = keeps_nan(node);
      if (kept->second) {
        nodes.back().arguments[7] = activation;
        nodes.back().arguments[8] = scalars_of(node);
        nodes.back().results = node.results;
        continue;
      }
      write_in_place(node);
    }
    // Packed weights give channels-last results. If the traced result was not, views of it could fail.
    is_open = is_convolution(node) && is_channels_last[node.results[0].values[0]];
    if (is_open) use_onednn(node);
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
}

}  // namespace lensbox
