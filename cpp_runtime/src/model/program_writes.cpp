#include <ATen/core/Tensor.h>
#include <lensbox/error.h>

#include <algorithm>

#include "model/program.h"

namespace lensbox {

const void* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

std::unordered_set<const void*> storages_of_constants(const Program::Graph& graph) {
  std::unordered_set<const void*> storages;
  const auto add = [&](const c10::IValue& constant) {
    constant.visit([&](const c10::IValue& part) {  // lists have parts
      if (part.isTensor()) storages.insert(storage_of(part.toTensor()));
      return false;
    });
  };
  const auto add_item = [&](const GraphItem& item) { add(item.constant); };
  for (const GraphNode& node : graph.nodes) {
    std::ranges::for_each(node.arguments, add);
    for (const GraphArgument& argument : node.filled) {
      std::ranges::for_each(argument.items, add_item);
    }
  }
  std::ranges::for_each(graph.outputs, add_item);
  return storages;
}

std::vector<size_t> written_arguments(const GraphNode& node) {
  const auto& arguments = node.op->schema().arguments();
  // Norms update running statistics while they train, and no schema says so.
  bool is_training = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if ((arguments[i].name() == "training" || arguments[i].name() == "use_input_stats") &&
        node.arguments[i].isBool()) {
      is_training = node.arguments[i].toBool() ||
                    std::ranges::find(node.filled, i, &GraphArgument::position) != node.filled.end();
    }
  }
  std::vector<size_t> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* const alias = arguments[i].alias_info();
    const bool is_statistic = arguments[i].name().starts_with("running_") && is_training;
    if (is_statistic || (alias != nullptr && alias->isWrite())) written.push_back(i);
  }
  return written;
}

void check_written(const GraphNode& node, const std::vector<c10::IValue>& arguments,
                   const std::unordered_set<const void*>& weights, const std::vector<at::Tensor>& inputs) {
  const auto is_seen = [&](const at::Tensor& tensor) {
    const void* const storage = storage_of(tensor);
    return storage != nullptr &&
           (weights.contains(storage) ||
            std::ranges::any_of(inputs, [&](const auto& input) { return storage_of(input) == storage; }));
  };
  const auto refuse_if = [&](bool is_seen) {
    if (is_seen) throw ArtifactError("in the node " + node.name + ": " + kMustNotChange);
  };
  for (const size_t position : node.written) {
    const c10::IValue& argument = arguments[position];
    if (argument.isTensor()) refuse_if(is_seen(argument.toTensor()));
    if (!argument.isList()) continue;
    for (const c10::IValue& item : argument.toListRef()) {
      refuse_if(item.isTensor() && is_seen(item.toTensor()));
    }
  }
}

}  // namespace lensbox
