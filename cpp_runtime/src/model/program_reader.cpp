// The format: torch/_export/serde/schema.py and torch/export/pt2_archive of torch.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "file/artifact_file.h"
#include "file/errors.h"
#include "model/program.h"

namespace lensbox {
namespace {

using GraphJson = nlohmann::json;

constexpr int kSchemaMajor = 8;
constexpr int kDeepest = 100;  // levels of JSON

// A feature of the graph that this library does not have, or a fault of the file.
struct GraphError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool condition, const std::string& rule, const GraphJson& got) {
  if (!condition) throw GraphError(rule + ", got " + got.dump().substr(0, 80));
}

int64_t as_integer(const GraphJson& value) {
  require(value.is_number_integer() &&
              (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX}),
          "a number must be an integer of 64 bits", value);
  return value.get<int64_t>();
}

double as_double(const GraphJson& value) {
  if (!value.is_string()) return value.get<double>();
  static const std::map<std::string, double> kOthers{
      {"Infinity", INFINITY}, {"-Infinity", -INFINITY}, {"NaN", NAN}};
  const auto found = kOthers.find(value.get<std::string>());
  require(found != kOthers.end(), "a number that is a text must be Infinity, -Infinity or NaN", value);
  return found->second;
}

// Return name and value of the only entry of an object that is not null, which is how a union is written.
std::pair<std::string, const GraphJson&> entry_of(const GraphJson& object) {
  for (const auto& [key, value] : object.items()) {
    if (object.size() == 1 || !value.is_null()) return {key, value};
  }
  throw GraphError("a value must have a kind");
}

// Return c10's number of an enumeration in the schema.
template <class Type>
Type from_schema(const std::map<int64_t, Type>& known, const char* what, const GraphJson& value) {
  const auto found = known.find(as_integer(value));
  require(found != known.end(), std::string("a ") + what + " must be known to this library", value);
  return found->second;
}

at::ScalarType dtype_of(const GraphJson& value) {
  static const std::map<int64_t, at::ScalarType> kTypes{
      {1, at::kByte},        {2, at::kChar},           {3, at::kShort},          {4, at::kInt},
      {5, at::kLong},        {6, at::kHalf},           {7, at::kFloat},          {8, at::kDouble},
      {9, at::kComplexHalf}, {10, at::kComplexFloat},  {11, at::kComplexDouble}, {12, at::kBool},
      {13, at::kBFloat16},   {29, at::kFloat8_e4m3fn}, {30, at::kFloat8_e5m2}};
  return from_schema(kTypes, "dtype", value);
}

at::Layout layout_of(const GraphJson& value) {
  return from_schema<at::Layout>({{7, at::kStrided}}, "layout", value);
}

at::MemoryFormat memory_format_of(const GraphJson& value) {
  using enum at::MemoryFormat;
  return from_schema<at::MemoryFormat>(
      {{1, Contiguous}, {2, ChannelsLast}, {3, ChannelsLast3d}, {4, Preserve}}, "memory format", value);
}

// Return whether an op takes a constant, or a value of a run, as this type. The op itself checks values.
bool takes(const c10::TypePtr& type, const GraphItem& item) {
  const c10::IValue& value = item.constant;
  if (item.is_constant() && value.isNone()) return type->cast<c10::OptionalType>() != nullptr;
  switch (without_optional(type)->kind()) {
    case c10::TypeKind::TensorType:
      return !item.is_constant() || value.isTensor() || value.isScalar();
    case c10::TypeKind::NumberType:
      return !item.is_constant() || value.isScalar();
    case c10::TypeKind::FloatType:
      return !item.is_constant() || value.isDouble() || value.isInt();
    case c10::TypeKind::IntType:
      return !item.is_constant() || value.isInt();
    case c10::TypeKind::BoolType:
      return !item.is_constant() || value.isBool();
    case c10::TypeKind::StringType:
      return value.isString();
    case c10::TypeKind::DeviceObjType:
      return value.isDevice();
    default:
      return false;
  }
}

std::string_view view_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

class GraphReader {
 public:
  GraphReader(const at::Tensor& bytes, std::string graph, c10::Device device)
      : bytes_(bytes),
        archive_(reader_of(view_of(bytes), std::make_shared<at::Tensor>(bytes))),
        name_(std::move(graph)) {
    graph_->device = device;
  }

  std::shared_ptr<const Program::Graph> read() {
    choose_graph();
    const GraphJson program = json("models/" + name_ + ".json");
    const GraphJson& version = program.at("schema_version").at("major");
    require(as_integer(version) == kSchemaMajor, "the version of torch.export's schema must be 8", version);
    const bool is_little = !archive_.hasRecord("byteorder") || view_of(record("byteorder")) == "little";
    if (!is_little) throw GraphError("its numbers must be little-endian");
    read_weights("data/weights/", "weights");
    read_weights("data/constants/", "constants");
    const GraphJson& module = program.at("graph_module");
    const GraphJson& graph = module.at("graph");
    metas_ = &graph.at("tensor_values");
    for (const GraphJson& spec : module.at("signature").at("input_specs")) {
      read_input(spec, program.at("range_constraints"));
    }
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
      require(takes(c10::TensorType::get(), graph_->outputs.back()), "an output must be a tensor", output);
    }
    fuse_convolutions(*graph_, is_channels_last_);
    drop_early();
    return graph_;
  }

 private:
  // --- the archive ---

  // Return the bytes of a record, which torch stores uncompressed.
  at::Tensor record(const std::string& name) {
    if (!archive_.hasRecord(name)) throw GraphError("it holds no " + name);
    const size_t begin = archive_.getRecordOffset(name), size = archive_.getRecordSize(name);
    const auto all = static_cast<size_t>(bytes_.numel());
    if (begin > all || size > all - begin)
      throw GraphError("the record " + name + " must lie within the file");
    constexpr size_t kMethod = 8;  // in the header before the record; 0: stored as it is
    const size_t header = archive_.getRecordHeaderOffset(name) + kMethod;
    if (header + 2 > all || view_of(bytes_).substr(header, 2) != std::string_view("\0\0", 2)) {
      throw GraphError("the record " + name + " must be stored without compression");
    }
    return bytes_.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(size));
  }

  GraphJson json(const std::string& name) {
    const auto is_flat = [](int depth, GraphJson::parse_event_t /*event*/, GraphJson& /*parsed*/) {
      if (depth > kDeepest) throw GraphError("its JSON is nested too deeply");
      return true;
    };
    return GraphJson::parse(view_of(record(name)), is_flat);
  }

  void choose_graph() {
    std::vector<std::string> names;
    for (const std::string& name : archive_.getAllRecords()) {
      if (name.starts_with("models/") && name.ends_with(".json"))
        names.push_back(name.substr(7, name.size() - 12));
    }
    if (names.empty()) throw GraphError("it is no program of torch.export: it holds no models/NAME.json");
    if (name_.empty()) name_ = names.size() == 1 ? names[0] : "model";
    if (std::ranges::find(names, name_) == names.end()) {
      throw GraphError("the graph must be one of " + joined(names) + ", got " + name_);
    }
  }

  void read_weights(const std::string& folder, const std::string& kind) {
    const std::string config = folder + name_ + "_" + kind + "_config.json";
    if (!archive_.hasRecord(config)) return;
    const GraphJson document = json(config);
    for (const auto& [name, payload] : document.at("config").items()) {
      // Pickled objects are refused where the graph needs them.
      if (!payload.at("use_pickle").get<bool>()) weights_[name] = weight(folder, payload);
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
    at::Tensor bytes = record(folder + payload.at("path_name").get<std::string>());
    const size_t needed = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype), offset);
    require(needed <= static_cast<size_t>(bytes.numel()),
            "a weight must have " + std::to_string(needed) + " bytes", bytes.numel());
    constexpr uintptr_t kAlignment = 16;
    if (reinterpret_cast<uintptr_t>(bytes.const_data_ptr()) % kAlignment != 0) bytes = bytes.clone();
    const auto keep = [bytes](void*) {};
    return at::from_blob(bytes.mutable_data_ptr(), sizes, strides, offset, keep, at::dtype(dtype))
        .to(graph_->device);
  }

  // --- inputs ---

  void read_input(const GraphJson& spec, const GraphJson& constraints) {
    const auto [kind, value] = entry_of(spec);
    if (kind == "constant_input") return;
    const GraphJson& argument = value.at("arg");
    if (kind == "user_input") {
      if (argument.contains("as_none")) return;
      require(argument.contains("as_tensor"), "an input must be a tensor", argument);
      const auto name = argument.at("as_tensor").at("name").get<std::string>();
      GraphInput input{name, dtype_of(metas_->at(name).at("dtype")), {}};
      for (const GraphJson& size : metas_->at(name).at("sizes")) {
        input.sizes.push_back(size.contains("as_int") ? std::max<int64_t>(as_integer(size.at("as_int")), 0)
                                                      : free_size(size.at("as_expr"), constraints));
      }
      graph_->inputs.push_back(std::move(input));
      is_given_[new_value(name)] = true;
      return;
    }
    require(kind == "parameter" || kind == "buffer" || kind == "tensor_constant", "an input must be a tensor",
            spec);
    const auto found = weights_.find(value.at(kind + "_name").get<std::string>());
    require(found != weights_.end(), "the file must hold the numbers of each weight", value);
    items_[argument.at("name").get<std::string>()] = {-1, found->second};
  }

  // Return the number of a free size, as in GraphInput::sizes.
  int64_t free_size(const GraphJson& expression, const GraphJson& constraints) {
    // A symbol as Symbol('s34', positive=True, ...), or an expression; only equal texts are known to be
    // equal.
    auto text = expression.at("expr_str").get<std::string>();
    if (text.starts_with("Symbol('")) text = text.substr(8, text.find('\'', 8) - 8);
    auto& sizes = graph_->free_sizes;
    auto known = std::ranges::find(sizes, text, &FreeSize::name);
    if (known == sizes.end()) {
      FreeSize size{text};
      if (const auto range = constraints.find(text); range != constraints.end()) {
        if (!range->at("min_val").is_null()) size.least = as_integer(range->at("min_val"));
        if (!range->at("max_val").is_null()) size.most = as_integer(range->at("max_val"));
      }
      known = sizes.insert(sizes.end(), size);
    }
    return -1 - (known - sizes.begin());
  }

  // --- nodes ---

  int new_value(const std::string& name) {
    const int value = static_cast<int>(graph_->value_count++);
    if (!items_.try_emplace(name, GraphItem{value, {}}).second)
      throw GraphError("two values have the name " + name);
    const GraphJson strides = metas_->value(name, GraphJson::object()).value("strides", GraphJson::array());
    is_channels_last_.push_back(strides.size() == 4 && strides[1].value("as_int", 0) == 1);
    is_given_.push_back(false);
    return value;
  }

  GraphItem named(const GraphJson& name) const {
    const auto found = items_.find(name.get<std::string>());
    require(found != items_.end(), "a value must be computed before", name);
    return found->second;
  }

  // Return whether an item is an input, a weight, or a view of one, which other runs see.
  bool is_given(const GraphItem& item) const {
    return item.is_constant() ? item.constant.isTensor() : is_given_[item.value];
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
    // These state what the trace assumed, such as its device, or compare sizes for such a statement.
    const GraphJson& outputs = json.at("outputs");
    if (target.starts_with("torch.ops.aten._assert_") ||
        target.find(".sym_constrain_range") != std::string::npos ||
        (outputs.size() == 1 && entry_of(outputs[0]).first == "as_sym_bool"))
      return;
    try {
      GraphNode node;
      node.name = json.value("name", GraphJson()).is_string() ? json.at("name").get<std::string>() : target;
      if (target.starts_with("torch.ops.")) {
        read_call(node, target.substr(10), json);
      } else {
        read_calculation(node, target, json);
      }
      graph_->nodes.push_back(std::move(node));
    } catch (const std::exception& error) {
      throw GraphError("it has a node of " + target.substr(0, 200) + ": " + error.what());
    }
  }

  void read_calculation(GraphNode& node, const std::string& target, const GraphJson& json) {
    node.number_op = find_number_op(target);
    if (node.number_op == nullptr) throw GraphError("this library has no such function");
    const GraphJson& inputs = json.at("inputs");
    require(inputs.size() == 1 || inputs.size() == 2, "it must have one or two arguments", inputs);
    for (const GraphJson& input : inputs) {
      const auto [kind, value] = entry_of(input.at("arg"));
      node.filled.push_back({node.arguments.size(), c10::NumberType::get(), {item_of(kind, value)}});
      node.arguments.emplace_back();
    }
    node.results = {{new_value(entry_of(json.at("outputs").at(0)).second.at("as_name").get<std::string>())}};
    node.is_list = {false};
  }

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
    node.op = c10::Dispatcher::singleton().findSchema(name);
    if (!node.op) throw GraphError("the op " + c10::toString(name) + " is not registered");
    const auto& arguments = node.op->schema().arguments();
    std::vector<bool> is_named(arguments.size());
    bool has_given = false;  // among the arguments that a result may be a view of
    for (const c10::Argument& argument : arguments) {
      node.arguments.push_back(argument.default_value().value_or(c10::IValue()));
    }
    for (const GraphJson& input : json.at("inputs")) {
      const auto position = node.op->schema().argumentIndexWithName(input.at("name").get<std::string>());
      require(position.has_value(), "the op must have each argument", input);
      has_given |= read_argument(node, *position, input.at("arg"));
      is_named[*position] = true;
    }
    for (size_t i = 0; i < is_named.size(); ++i) {
      if (!is_named[i] && !arguments[i].default_value())
        throw GraphError("it lacks the argument " + arguments[i].name());
    }
    read_results(node, json.at("outputs"), has_given);
  }

  // Set an argument now if it has constants alone, else for each run. Return whether results may be views of
  // it, and it is given.
  bool read_argument(GraphNode& node, size_t position, const GraphJson& json) {
    const c10::Argument& wanted = node.op->schema().arguments()[position];
    const auto [kind, value] = entry_of(json);
    GraphArgument argument{position, wanted.type(), {}};
    c10::TypePtr type = wanted.type();
    const auto list = without_optional(type)->cast<c10::ListType>();
    if (list && kind != "as_none") type = list->getElementType();
    if (list && value.is_array()) {
      for (const GraphJson& entry : value) {
        argument.items.push_back(item_of(kind.substr(0, kind.size() - 1), entry));  // as_ints: items as_int
      }
    } else {
      // A number stands for a list of equal numbers.
      const int count = list && kind != "as_none" ? std::clamp(wanted.N().value_or(1), 1, 8) : 1;
      argument.items.assign(count, item_of(kind, value));
    }
    require(std::ranges::all_of(argument.items, [&](const GraphItem& item) { return takes(type, item); }),
            "the argument " + wanted.name() + " must be " + wanted.type()->str(), json);
    const bool has_given =
        wanted.alias_info() != nullptr &&
        std::ranges::any_of(argument.items, [&](const auto& item) { return is_given(item); });
    require(!has_given || !wanted.alias_info()->isWrite(), "the graph must not change inputs or weights",
            json);
    if (kind == "as_none") {
      node.arguments[position] = {};
    } else if (std::ranges::all_of(argument.items, &GraphItem::is_constant)) {
      node.arguments[position] = filled_argument(argument, {});
    } else {
      node.filled.push_back(std::move(argument));
    }
    return has_given;
  }

  void read_results(GraphNode& node, const GraphJson& outputs, bool has_given) {
    const auto& returns = node.op->schema().returns();
    require(outputs.size() <= returns.size(), "it must have as many results as the op", outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto [kind, value] = entry_of(outputs[i]);
      const c10::TypeKind type = returns[i].type()->kind();
      std::vector<int> values;
      if (kind == "as_tensor" && type == c10::TypeKind::TensorType) {
        values = {new_value(value.at("name").get<std::string>())};
      } else if ((kind == "as_sym_int" || kind == "as_sym_float") &&
                 returns[i].type()->isSubtypeOf(*c10::NumberType::get())) {
        values = {new_value(value.at("as_name").get<std::string>())};
      } else {
        require(kind == "as_tensors" && type == c10::TypeKind::ListType, "a result must be of the op's type",
                outputs[i]);
        for (const GraphJson& one : value) {
          values.push_back(new_value(one.at("name").get<std::string>()));
        }
      }
      if (has_given && returns[i].alias_info() != nullptr) {
        for (const int view : values)
          is_given_[view] = true;
      }
      node.results.push_back(std::move(values));
      node.is_list.push_back(kind == "as_tensors");
    }
  }

  // Let each node drop the values that nothing after it needs.
  void drop_early() {
    std::vector<bool> is_needed(graph_->value_count);
    for (const GraphItem& output : graph_->outputs) {
      if (!output.is_constant()) is_needed[output.value] = true;
    }
    for (auto node = graph_->nodes.rbegin(); node != graph_->nodes.rend(); ++node) {
      std::vector<int> used;
      for (const auto& values : node->results) {
        used.insert(used.end(), values.begin(), values.end());
      }
      for (const GraphArgument& argument : node->filled) {
        for (const GraphItem& item : argument.items) {
          if (!item.is_constant()) used.push_back(item.value);
        }
      }
      for (const int value : used) {
        if (!is_needed[value]) node->dropped.push_back(value);
        is_needed[value] = true;
      }
    }
  }

  at::Tensor bytes_;
  caffe2::serialize::PyTorchStreamReader archive_;
  std::string name_;
  const GraphJson* metas_ = nullptr;    // of the tensors of the graph, by their names
  std::vector<bool> is_channels_last_;  // of each value
  std::vector<bool> is_given_;          // of each value: an input, or a view of one or of a weight
  std::shared_ptr<Program::Graph> graph_ = std::make_shared<Program::Graph>();
  std::unordered_map<std::string, GraphItem> items_;      // by their names in the graph
  std::unordered_map<std::string, c10::IValue> weights_;  // by their names in the module
};

}  // namespace

Program read_program(const std::filesystem::path& file, const at::Tensor& bytes, const std::string& graph,
                     c10::Device device) {
  try {
    const c10::InferenceMode inference_mode;  // the weights need no version counters
    return Program(GraphReader(bytes, graph, device).read());
  } catch (const std::exception& error) {
    fail_artifact(file, "cannot be run as a program of torch.export:\n" + torch_message(error));
  }
}

}  // namespace lensbox
