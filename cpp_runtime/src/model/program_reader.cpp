// The format: torch/_export/serde/schema.py and torch/export/pt2_archive of torch.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "file/archive.h"
#include "model/program.h"
#include "model/program_json.h"
#include "model/program_operators.h"
#include "model/program_sizes.h"
#include "model/torch_errors.h"

namespace lensbox {
namespace {

constexpr int kSchemaMajor = 8;

// Return whether an op takes a value as this type. The op itself checks what the value is.
bool takes(const c10::TypePtr& type, const c10::IValue& value) {
  return (type->kind() == c10::TypeKind::NumberType && value.isScalar()) || value.type()->isSubtypeOf(*type);
}

std::string_view view_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

class GraphReader {
 public:
  GraphReader(const at::Tensor& bytes, std::string graph, c10::Device device)
      : bytes_(bytes), archive_(view_of(bytes)), name_(std::move(graph)) {
    graph_->device = device;
  }

  std::shared_ptr<const Program::Graph> read(bool has_seal) {
    if (!has_seal) archive_.check_sums();
    choose_graph();
    const GraphJson program = json("models/" + name_ + ".json");
    const GraphJson& version = program.at("schema_version").at("major");
    require(as_integer(version) == kSchemaMajor, "the version of torch.export's schema must be 8", version);
    const bool is_little = !archive_.has("byteorder") || record("byteorder") == "little";
    if (!is_little) throw GraphError("its numbers must be little-endian");
    read_weights("data/weights/", "weights");
    read_weights("data/constants/", "constants");
    const GraphJson& module = program.at("graph_module");
    const GraphJson& graph = module.at("graph");
    metas_ = &graph.at("tensor_values");
    for (const GraphJson& spec : module.at("signature").at("input_specs")) {
      read_input(spec);
    }
    graph_->size_rules = read_size_rules(program, graph_->inputs, place_of_leaf_);
    sizes_of_data_ = &graph.at("sym_int_values");
    for (const GraphJson& node : graph.at("nodes")) {
      read_node(node);
    }
    for (const GraphJson& spec : module.at("signature").at("output_specs")) {
      require(entry_of(spec).first == "user_output", "the graph must not change inputs or weights", spec);
    }
    for (const GraphJson& output : graph.at("outputs")) {
      const auto [kind, value] = entry_of(output);
      if (kind == "as_none") continue;
      graph_->outputs.push_back(item_of(kind, value));
      const c10::TypePtr type = c10::TensorType::get();
      require(takes(type, as_type(*type, graph_->outputs.back(), samples_)), "an output must be a tensor",
              output);
    }
    fuse_convolutions(*graph_, is_channels_last_);
    drop_early();
    graph_->weights = storages_of_constants(*graph_);
    return graph_;
  }

 private:
  // --- the archive ---

  std::string_view record(const std::string& name) { return archive_.record(name); }

  GraphJson json(const std::string& name) { return parse_json(record(name)); }

  void choose_graph() {
    std::vector<std::string> names;
    for (const std::string& name : archive_.names()) {
      if (name.starts_with("models/") && name.ends_with(".json"))
        names.push_back(name.substr(7, name.size() - 12));
    }
    if (names.empty()) throw GraphError("it is no program of torch.export: it holds no models/NAME.json");
    if (name_.empty()) name_ = names.size() == 1 ? names[0] : "model";
    if (std::ranges::find(names, name_) == names.end()) {
      throw GraphError("the graph must be one of " + c10::Join(", ", names) + ", got " + name_);
    }
  }

  void read_weights(const std::string& folder, const std::string& kind) {
    const std::string config = folder + name_ + "_" + kind + "_config.json";
    if (!archive_.has(config)) return;
    const GraphJson document = json(config);
    for (const auto& [name, payload] : document.at("config").items()) {
      require(!payload.at("use_pickle").get<bool>(), "a weight must be plain numbers, no pickle", name);
      weights_[name] = weight(folder, payload);
    }
  }

  at::Tensor weight(const std::string& folder, const GraphJson& payload) {
    const GraphJson& meta = payload.at("tensor_meta");
    const auto integers = [&](const char* key) {
      std::vector<int64_t> values;
      for (const GraphJson& value : meta.at(key)) {
        values.push_back(as_integer(value.at("as_int")));
        require(values.back() >= 0, std::string(key) + " must not be negative", value);
      }
      return values;
    };
    const std::vector<int64_t> sizes = integers("sizes"), strides = integers("strides");
    const int64_t offset = as_integer(meta.at("storage_offset").at("as_int"));
    const at::ScalarType dtype = dtype_of(meta.at("dtype"));
    layout_of(meta.at("layout"));
    require(sizes.size() == strides.size() && offset >= 0, "sizes and strides must fit", meta);
    if (std::ranges::find(sizes, 0) != sizes.end())
      return at::empty(sizes, at::dtype(dtype).device(graph_->device));
    const std::string_view numbers = record(folder + payload.at("path_name").get<std::string>());
    const auto begin = static_cast<int64_t>(numbers.data() - view_of(bytes_).data());
    at::Tensor bytes = bytes_.narrow(0, begin, static_cast<int64_t>(numbers.size()));
    const size_t needed = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype), offset);
    require(needed <= static_cast<size_t>(bytes.numel()),
            "a weight must have " + std::to_string(needed) + " bytes", bytes.numel());
    if (dtype == at::kBool && std::ranges::any_of(numbers, [](char byte) { return byte != 0 && byte != 1; }))
      throw GraphError("a truth must be 0 or 1");
    constexpr uintptr_t kAlignment = 16;
    if (reinterpret_cast<uintptr_t>(bytes.const_data_ptr()) % kAlignment != 0) bytes = bytes.clone();
    const auto keep = [bytes](void*) {};
    return at::from_blob(bytes.mutable_data_ptr(), sizes, strides, offset, keep, at::dtype(dtype))
        .to(graph_->device);
  }

  // --- inputs ---

  void read_input(const GraphJson& spec) {
    const auto [kind, value] = entry_of(spec);
    if (kind == "user_input" || kind == "constant_input") place_of_leaf_.push_back(-1);
    if (kind == "constant_input") return;
    const GraphJson& argument = value.at("arg");
    if (kind == "user_input") {
      if (argument.contains("as_none")) return;
      require(argument.contains("as_tensor"), "an input must be a tensor", argument);
      place_of_leaf_.back() = static_cast<int64_t>(graph_->inputs.size());
      const auto name = argument.at("as_tensor").at("name").get<std::string>();
      GraphInput input{name, dtype_of(metas_->at(name).at("dtype")), {}, {}};
      for (const GraphJson& size : metas_->at(name).at("sizes")) {
        const bool is_fixed = size.contains("as_int");
        input.sizes.push_back(is_fixed ? std::max<int64_t>(as_integer(size.at("as_int")), 0) : -1);
        input.free_sizes.push_back(is_fixed ? "" : size.at("as_expr").at("expr_str").get<std::string>());
      }
      graph_->inputs.push_back(std::move(input));
      aliases_caller_memory_[new_value(name, at::empty({0}))] = true;
      return;
    }
    require(kind == "parameter" || kind == "buffer" || kind == "tensor_constant", "an input must be a tensor",
            spec);
    const auto found = weights_.find(value.at(kind + "_name").get<std::string>());
    require(found != weights_.end(), "the file must hold the numbers of each weight", value);
    items_[argument.at("name").get<std::string>()] = {-1, found->second};
  }

  // --- nodes ---

  // sample: a value of its type.
  int new_value(const std::string& name, c10::IValue sample) {
    samples_.push_back(std::move(sample));
    const int value = static_cast<int>(graph_->value_count++);
    if (!items_.try_emplace(name, GraphItem{value, {}}).second)
      throw GraphError("two values have the name " + name);
    const GraphJson strides = metas_->value(name, GraphJson::object()).value("strides", GraphJson::array());
    is_channels_last_.push_back(strides.size() == 4 && strides[1].contains("as_int") &&
                                strides[1].at("as_int") == 1);
    aliases_caller_memory_.push_back(false);
    operands_.push_back({value});
    names_.push_back(name);
    return value;
  }

  GraphItem named(const GraphJson& name) const {
    const auto found = items_.find(name.get<std::string>());
    require(found != items_.end(), "a value must be computed before", name);
    return found->second;
  }

  // Return whether an item is an input, a weight, or a view of one, which other runs see.
  bool aliases_caller_memory(const GraphItem& item) const {
    return item.is_constant() ? item.constant.isTensor() : aliases_caller_memory_[item.value];
  }

  bool has_alias(const GraphArgument& argument) const {
    return std::ranges::any_of(argument.items,
                               [&](const GraphItem& item) { return aliases_caller_memory(item); });
  }

  // Return the item of an argument of this kind, which is no list.
  GraphItem item_of(const std::string& kind, const GraphJson& value) const {
    const auto constant = [](c10::IValue number) { return GraphItem{-1, std::move(number)}; };
    if (kind == "as_none") return {};
    if (kind == "as_tensor") return named(value.at("name"));
    if (kind == "as_name") return named(value);
    if (kind == "as_int") return constant(as_integer(value));
    if (kind == "as_float") return constant(as_double(value));
    if (kind == "as_bool") return constant(value.get<bool>());
    if (kind == "as_string") return constant(value.get<std::string>());
    if (kind == "as_scalar_type") return constant(dtype_of(value));
    if (kind == "as_memory_format") return constant(memory_format_of(value));
    if (kind == "as_layout") return constant(layout_of(value));
    if (kind == "as_device") return constant(graph_->device);  // wherever the graph was traced
    if (kind == "as_optional_tensor" || kind == "as_sym_int" || kind == "as_sym_float" ||
        kind == "as_sym_bool") {
      const auto [inner, content] = entry_of(value);
      if (!inner.starts_with("as_sym") && !inner.starts_with("as_opt")) return item_of(inner, content);
    }
    throw GraphError("this library does not pass arguments of the kind " + kind.substr(0, 80));
  }

  void read_node(const GraphJson& json) {
    const auto target = json.at("target").get<std::string>();
    // It states dtype and device of the trace. Inputs are checked, and the graph may run on another device.
    if (target.starts_with("torch.ops.aten._assert_tensor_metadata.")) return;
    try {
      GraphNode node;
      node.name = json.value("name", GraphJson()).is_string() ? json.at("name").get<std::string>() : target;
      if (is_data_rule(target)) {
        read_data_rule(node, target, json);
      } else if (target.starts_with("torch.ops.")) {
        read_call(node, target.substr(10), json);
      } else {
        read_calculation(node, target, json);
      }
      graph_->nodes.push_back(std::move(node));
      add_data_ranges(json.at("outputs"));
    } catch (const std::exception& error) {
      throw GraphError("it has a node of " + target.substr(0, 200) + ": " + torch_message(error).substr(2));
    }
  }

  void read_calculation(GraphNode& node, const std::string& target, const GraphJson& json) {
    if (has_calculation(target)) node.number_op = find_number_op(target);
    if (node.number_op == nullptr) throw GraphError("this library has no such function");
    const GraphJson& inputs = json.at("inputs");
    require(inputs.size() == node.number_op->count && json.at("outputs").size() == 1,
            "it must have as many arguments as the function, and one result", json);
    for (const GraphJson& input : inputs) {
      node.filled.push_back(argument_of({"a", c10::NumberType::get()}, node.filled.size(), input.at("arg")));
    }
    node.arguments.resize(inputs.size());
    read_results(node, {c10::Argument("", c10::NumberType::get())}, json.at("outputs"), false);
    if (const std::vector<int> taken = node.taken(); !taken.empty()) {
      operands_[node.results[0].values[0]] = taken;
    }
  }

  // --- what the numbers in the data must be ---

  static bool is_data_rule(const std::string& target) {
    static const std::set<std::string> kRules{"torch.ops.aten._assert_scalar.default",
                                              "torch.ops.aten.sym_constrain_range.default",
                                              "torch.ops.aten.sym_constrain_range_for_size.default"};
    return kRules.contains(target);
  }

  // Read a truth that must hold, or limits of a number. Unlike torch's own function on a GPU, a run that
  // finds a fault ends with an error, and the process lives on.
  void read_data_rule(GraphNode& node, const std::string& target, const GraphJson& json) {
    node.rule.emplace(DataRule{node.name, target.find("constrain_range") != std::string::npos, {}, {}});
    GraphItem value;
    for (const GraphJson& input : json.at("inputs")) {
      const auto [kind, content] = entry_of(input.at("arg"));
      const auto name = input.at("name").get<std::string>();
      if (name == "assert_msg") {
        node.rule->text = content.get<std::string>();
      } else if (name == "min" || name == "max") {
        if (kind == "as_none") continue;
        (name == "min" ? node.rule->range.least : node.rule->range.most) = as_integer(content);
      } else {
        value = item_of(kind, content);
      }
    }
    require(!value.is_constant() || value.constant.isScalar(), "it must have a value to check", json);
    require(json.at("outputs").empty(), "it must have no results", json);
    set_data_rule(node, value);
  }

  void set_data_rule(GraphNode& node, const GraphItem& value) {
    node.filled.push_back({0, c10::AnyType::get(), false, {value}});
    for (const int shown : value.is_constant() ? std::vector<int>() : operands_[value.value]) {
      node.filled.push_back({node.filled.size(), c10::AnyType::get(), false, {{shown, {}}}});
      node.rule->names.push_back(names_[shown]);
    }
    node.arguments.resize(node.filled.size());
  }

  // Let the numbers among a node's results be within the ranges of their symbols, such as u0.
  void add_data_ranges(const GraphJson& outputs) {
    for (const GraphJson& output : outputs) {
      const auto [kind, value] = entry_of(output);
      if (kind != "as_sym_int" || !value.contains("as_name")) continue;
      const auto name = value.at("as_name").get<std::string>();
      const GraphJson size = sizes_of_data_->value(name, GraphJson::object());
      if (!size.contains("as_expr")) continue;
      const auto text = size.at("as_expr").at("expr_str").get<std::string>();
      const std::string symbol = text.starts_with("Symbol('") ? text.substr(8, text.find('\'', 8) - 8) : "";
      const auto range = graph_->size_rules.data_ranges.find(symbol);
      if (range == graph_->size_rules.data_ranges.end()) continue;
      GraphNode node{.name = name, .rule = DataRule{symbol, true, range->second, {}}};
      set_data_rule(node, named(value.at("as_name")));
      graph_->nodes.push_back(std::move(node));
    }
  }

  // --- calls ---

  // target: such as aten.conv2d.default.
  void read_call(GraphNode& node, const std::string& target, const GraphJson& json) {
    const size_t first = target.find('.'), second = target.find('.', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      throw GraphError("this library does not run subgraphs");
    }
    const std::string overload = target.substr(second + 1);
    const c10::OperatorName name(
        target.substr(0, first) + "::" + target.substr(first + 1, second - first - 1),
        overload == "default" ? "" : overload);
    const ProgramOperator allowed = find_operator(name);
    node.op = allowed.op;
    node.guard = allowed.guard;
    const auto& arguments = node.op->schema().arguments();
    std::vector<bool> is_named(arguments.size());
    bool aliases = false;  // of the caller's memory, among the arguments that a result may be a view of
    for (const c10::Argument& argument : arguments) {
      node.arguments.push_back(argument.default_value().value_or(c10::IValue()));
    }
    for (const GraphJson& input : json.at("inputs")) {
      const auto position = node.op->schema().argumentIndexWithName(input.at("name").get<std::string>());
      require(position.has_value(), "the op must have each argument", input);
      GraphArgument argument = argument_of(arguments[*position], *position, input.at("arg"));
      if (const auto* const alias = arguments[*position].alias_info(); alias != nullptr) {
        aliases |= has_alias(argument);
      }
      if (std::ranges::all_of(argument.items, &GraphItem::is_constant)) {
        node.arguments[*position] = filled_argument(argument, {});
      } else {
        node.filled.push_back(std::move(argument));
      }
      is_named[*position] = true;
    }
    for (size_t i = 0; i < is_named.size(); ++i) {
      if (!is_named[i] && !arguments[i].default_value())
        throw GraphError("it lacks the argument " + arguments[i].name());
    }
    std::vector<bool> is_known(arguments.size(), true);
    for (const GraphArgument& argument : node.filled) {
      is_known[argument.position] = false;
    }
    allowed.check(node.arguments, is_known);
    node.written = written_arguments(node);
    for (const size_t position : node.written) {
      const auto is_seen = [&](const GraphArgument& argument) {
        return argument.position == position && has_alias(argument);
      };
      const bool is_weight = node.arguments[position].isTensor() || node.arguments[position].isTensorList();
      require(!is_weight && std::ranges::none_of(node.filled, is_seen), kMustNotChange, json.at("inputs"));
    }
    read_results(node, node.op->schema().returns(), json.at("outputs"), aliases && !may_copy(node));
  }

  // Return whether an op that may return a view may return a copy instead. Then a run compares storages.
  static bool may_copy(const GraphNode& node) {
    static const std::set<std::string> kNames{"aten::to",        "aten::contiguous", "aten::reshape",
                                              "aten::flatten",   "aten::ravel",      "aten::reshape_as",
                                              "aten::unflatten", "aten::type_as"};
    return kNames.contains(node.op->schema().name());
  }

  GraphArgument argument_of(const c10::Argument& wanted, size_t position, const GraphJson& json) const {
    const auto [kind, value] = entry_of(json);
    c10::TypePtr type = wanted.type();
    const auto optional = type->cast<c10::OptionalType>();
    if (optional && kind != "as_none") type = optional->getElementType();
    const auto list = type->cast<c10::ListType>();
    GraphArgument argument{position, list ? list->getElementType() : type, list != nullptr, {}};
    if (list && value.is_array()) {
      for (const GraphJson& entry : value) {
        argument.items.push_back(item_of(kind.substr(0, kind.size() - 1), entry));  // as_ints: items as_int
      }
    } else {
      // A number stands for a list of equal numbers.
      argument.items.assign(list ? std::clamp(wanted.N().value_or(1), 1, 8) : 1, item_of(kind, value));
    }
    for (const GraphItem& item : argument.items) {
      require(takes(argument.type, as_type(*argument.type, item, samples_)),
              "the argument " + wanted.name() + " must be " + wanted.type()->str(), json);
    }
    return argument;
  }

  // aliases: whether results that are views are of what other runs see.
  void read_results(GraphNode& node, const std::vector<c10::Argument>& returns, const GraphJson& outputs,
                    bool aliases) {
    struct Kind {
      c10::TypePtr type;
      c10::IValue sample;
      const char* name;
    };
    static const std::map<std::string, Kind> kKinds{
        {"as_tensor", {c10::TensorType::get(), at::empty({0}), "name"}},
        {"as_tensors", {c10::ListType::ofTensors(), at::empty({0}), "name"}},
        {"as_sym_int", {c10::NumberType::get(), 1, "as_name"}},
        {"as_sym_float", {c10::NumberType::get(), 1.0, "as_name"}},
        {"as_sym_bool", {c10::BoolType::get(), true, "as_name"}}};
    require(outputs.size() == returns.size(), "it must have as many results as the op", outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto [kind, value] = entry_of(outputs[i]);
      const auto known = kKinds.find(kind);
      require(known != kKinds.end() &&
                  (returns[i].type()->isSubtypeOf(*known->second.type) ||
                   (known->second.sample.isBool() && returns[i].type()->kind() == c10::TypeKind::NumberType)),
              "a result must be of the op's type", outputs[i]);
      const auto& [type, sample, name] = known->second;
      GraphResult& result = node.results.emplace_back(GraphResult{kind == "as_tensors", {}});
      for (const GraphJson& one : result.is_list ? value : GraphJson::array({value})) {
        result.values.push_back(new_value(one.at(name).get<std::string>(), sample));
        aliases_caller_memory_[result.values.back()] = aliases && returns[i].alias_info() != nullptr;
      }
    }
  }

  // Return whether a node only calculates a number, or whether something is true.
  bool is_calculation(const GraphNode& node) const {
    return node.number_op != nullptr || (node.results.size() == 1 && !node.results[0].is_list &&
                                         samples_[node.results[0].values[0]].isBool());
  }

  // Let each node drop the values that nothing after it needs, and leave out calculations that nothing needs.
  void drop_early() {
    std::vector<bool> is_needed(graph_->value_count);
    for (const GraphItem& output : graph_->outputs) {
      if (!output.is_constant()) is_needed[output.value] = true;
    }
    for (auto node = graph_->nodes.rbegin(); node != graph_->nodes.rend(); ++node) {
      if (is_calculation(*node) && !is_needed[node->results[0].values[0]]) {
        node->op.reset();
        node->number_op = nullptr;
        continue;
      }
      std::vector<int> values = node->taken();
      for (const GraphResult& result : node->results) {
        values.insert(values.end(), result.values.begin(), result.values.end());
      }
      for (const int value : values) {
        if (!is_needed[value]) node->dropped.push_back(value);
        is_needed[value] = true;
      }
    }
    std::erase_if(graph_->nodes,
                  [](const GraphNode& node) { return !node.op && node.number_op == nullptr && !node.rule; });
  }

  at::Tensor bytes_;
  Archive archive_;
  std::string name_;
  const GraphJson* metas_ = nullptr;          // of the tensors of the graph, by their names
  std::vector<bool> is_channels_last_;        // of each value
  std::vector<c10::IValue> samples_;          // of each value, of its type
  std::vector<bool> aliases_caller_memory_;   // of each value: an input, or a view of one or of a weight
  std::vector<std::vector<int>> operands_;    // of each value: what it was calculated from, else itself
  std::vector<std::string> names_;            // of each value
  std::vector<int64_t> place_of_leaf_;        // of each flattened input: among the graph's, -1 for no tensor
  const GraphJson* sizes_of_data_ = nullptr;  // of each number by name: its symbols
  std::shared_ptr<Program::Graph> graph_ = std::make_shared<Program::Graph>();
  std::unordered_map<std::string, GraphItem> items_;      // by their names in the graph
  std::unordered_map<std::string, c10::IValue> weights_;  // by their names in the module
};

}  // namespace

Program read_program(const std::filesystem::path& file, const at::Tensor& bytes, const std::string& graph,
                     c10::Device device, bool has_seal) {
  try {
    const c10::InferenceMode inference_mode;  // the weights need no version counters
    return Program(GraphReader(bytes, graph, device).read(has_seal));
  } catch (const std::exception& error) {
    fail_artifact(file, "cannot be run as a program of torch.export:\n" + torch_message(error));
  }
}

}  // namespace lensbox
