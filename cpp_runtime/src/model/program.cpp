#include "model/program.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/StringUtil.h>
#include <lensbox/error.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "backends/call.h"
#include "model/detector_module.h"
#include "model/machine.h"
#include "model/op_library.h"
#include "model/torch_errors.h"

namespace lensbox {
namespace {

using GraphValues = std::vector<c10::IValue>;

// given: the inputs of the run.
void call_node(const GraphNode& node, GraphValues& values, const Program::Graph& graph,
               const Tensors& given) {
  GraphValues stack = node.arguments;
  for (const GraphArgument& argument : node.filled) {
    stack[argument.position] = filled_argument(argument, values);
  }
  if (!node.written.empty()) check_written(node, stack, graph.weights, given);
  if (node.guard != nullptr) node.guard(stack);
  if (node.rule) {
    node.rule->check(stack);
  } else if (node.op) {
    node.op->callBoxed(stack);
  } else {
    stack = {(*node.number_op)(stack)};
  }
  for (size_t i = 0; i < node.results.size(); ++i) {
    const auto& [is_list, places] = node.results[i];
    if (!is_list) {
      values[places[0]] = std::move(stack.at(i));
      continue;
    }
    const auto list = stack.at(i).toTensorVector();
    TORCH_CHECK(list.size() == places.size(), "must give ", places.size(), " tensors, got ", list.size());
    std::ranges::for_each(places, [&, next = list.begin()](int place) mutable { values[place] = *next++; });
  }
  for (const int value : node.dropped) {
    values[value] = {};
  }
}

}  // namespace

std::vector<int> GraphNode::taken() const {
  std::vector<int> values;
  for (const GraphArgument& argument : filled) {
    for (const GraphItem& item : argument.items) {
      if (!item.is_constant()) values.push_back(item.value);
    }
  }
  return values;
}

c10::IValue as_type(const c10::Type& type, const GraphItem& item, const GraphValues& values) {
  const c10::IValue& value = item.is_constant() ? item.constant : values[item.value];
  if (!value.isScalar()) return value;
  if (type.kind() == c10::TypeKind::FloatType) return value.toScalar().toDouble();
  if (type.kind() != c10::TypeKind::TensorType) return value;
  at::Tensor tensor = c10::scalar_to_tensor(value.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);  // whose dtype gives way to other tensors' dtypes
  return tensor;
}

c10::IValue filled_argument(const GraphArgument& argument, const GraphValues& values) {
  if (!argument.is_list) return as_type(*argument.type, argument.items[0], values);
  c10::impl::GenericList list(argument.type);
  for (const GraphItem& item : argument.items) {
    list.push_back(as_type(*argument.type, item, values));
  }
  return list;
}

std::vector<at::Tensor> Program::run(const std::vector<at::Tensor>& inputs) const {
  return graph_->run(inputs);
}

std::vector<at::Tensor> Program::Graph::run(const std::vector<at::Tensor>& given) const {
  check(given);
  const Call call;
  const c10::InferenceMode inference_mode;
  const c10::DeviceGuard on_device(device);
  const auto noted = c10::make_scope_exit([this]() noexcept { work.note(device); });
  GraphValues values(given.begin(), given.end());
  values.resize(value_count);
  for (const GraphNode& node : nodes) {
    try {
      call_node(node, values, *this, given);
    } catch (c10::Error& error) {
      error.add_context("in the node " + node.name);
      throw;
    }
  }
  std::vector<at::Tensor> results;
  for (const GraphItem& item : outputs) {
    results.push_back(as_type(*c10::TensorType::get(), item, values).toTensor());
  }
  return results;
}

void Program::Graph::check(const std::vector<at::Tensor>& given) const {
  if (given.size() != inputs.size()) {
    throw InputError(c10::str("inputs must be ", inputs.size(), " tensors, got ", given.size()));
  }
  const auto fits = [&](int64_t rule, int64_t size) { return rule < 0 || size == rule; };
  for (size_t i = 0; i < given.size(); ++i) {
    const auto& [name, dtype, sizes, free_sizes] = inputs[i];
    const at::Tensor& tensor = given[i];
    if (tensor.defined() && tensor.scalar_type() == dtype &&
        std::ranges::equal(sizes, tensor.sizes(), fits)) {
      continue;
    }
    std::vector<std::string> wanted;
    for (const int64_t size : sizes) {
      wanted.push_back(size >= 0 ? std::to_string(size) : "any");
    }
    throw InputError(c10::str(
        "inputs[", i, "] (", name, ") must be ", c10::toString(dtype), " [", c10::Join(", ", wanted),
        "], got ",
        tensor.defined() ? c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes()) : "none"));
  }
  size_rules.check(given);
}

void DataRule::check(const std::vector<c10::IValue>& arguments) const {
  const c10::IValue& value = arguments[0];
  const auto is_within = [&](const Number& number) {
    return compare(number, range.least) >= 0 && compare(number, range.most) <= 0;
  };
  const bool holds = value.isTensor() ? value.toTensor().is_nonzero()
                     : is_range       ? is_within(number_of(value))
                                      : is_true(number_of(value));
  if (holds) return;
  std::vector<std::string> got;
  for (size_t i = 0; i < names.size(); ++i) {
    const c10::IValue& shown = arguments[i + 1];
    got.push_back(names[i] + " = " + (shown.isScalar() ? text_of(number_of(shown)) : "a tensor of false"));
  }
  std::string limits;
  if (is_range && range.least > INT64_MIN) limits += " >= " + std::to_string(range.least);
  if (is_range && range.most < INT64_MAX)
    limits += (limits.empty() ? " <= " : " and <= ") + std::to_string(range.most);
  throw InputError("inputs must have data with " + text + limits + ", got " +
                   (got.empty() ? "a constant" : c10::Join(", ", got)));
}

Code load_graph(const std::filesystem::path& artifact, std::shared_ptr<const std::string> bytes,
                const std::string& name, c10::Device device) {
  // Weights on the CPU stay in these bytes. Nothing writes to them: a graph that changes a buffer is refused.
  char* const data = const_cast<char*>(bytes->data());
  const auto size = static_cast<int64_t>(bytes->size());
  const at::Tensor file = at::from_blob(data, {size}, [bytes](void*) {}, at::dtype(at::kByte));
  return [program = read_program(artifact, file, name, device, /*has_seal=*/true)](const Tensors& inputs) {
    return program.run(inputs);
  };
}

Program Program::load(const std::filesystem::path& file, const ProgramOptions& options) {
  const c10::Device device = parse_device(options.device);
  open_op_libraries(options.op_libraries);
  const Call call;
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) fail_artifact(file, error.message());
  if (size == 0 || size > uint64_t{INT64_MAX}) fail_artifact(file, "is empty");
  at::Tensor bytes;
  try {
    // Private: a write to a weight changes this process alone.
    bytes = at::from_file(file.string(), /*shared=*/false, static_cast<int64_t>(size), at::kByte);
  } catch (const c10::Error& reason) {
    fail_artifact(file, "cannot be read:\n" + torch_message(reason));
  }
  return read_program(file, bytes, options.graph, device, /*has_seal=*/false);
}

}  // namespace lensbox
