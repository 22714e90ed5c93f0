// The tree: torch/utils/_pytree.py, treespec_dumps.

#include "model/program_signature.h"

#include <algorithm>
#include <utility>

namespace lensbox {
namespace {

// Return the keys of a node's children, from what its type wrote; null if they have none.
GraphJson keys_of(const GraphJson& tree, const GraphJson& names_of_tuples) {
  const size_t count = tree.at("children_spec").size();
  const GraphJson& written = tree.at("context");
  const GraphJson context = written.is_string() ? parse_json(written.get<std::string>()) : GraphJson();
  if (context.is_string() && names_of_tuples.is_object()) {  // a namedtuple
    const GraphJson fields = names_of_tuples.value(context.get<std::string>(), GraphJson::object());
    return fields.is_object() ? fields.value("field_names", GraphJson()) : fields;
  }
  // Keys of a dict, or beside them a default or fields that are None.
  const auto fits = [&](const GraphJson& keys) {
    return keys.is_array() && keys.size() == count && std::ranges::all_of(keys, &GraphJson::is_primitive);
  };
  if (fits(context)) return context;
  for (const GraphJson& part : context.is_array() ? context : GraphJson::array()) {
    if (fits(part)) return part;
  }
  return {};
}

bool is_reached(const std::vector<PathStep>& leaf, const std::vector<PathStep>& path) {
  return std::ranges::equal(leaf, path, [](const PathStep& one, const PathStep& other) {
    return (one.key && one.key == other.key) || (one.index && one.index == other.index);
  });
}

}  // namespace

ProgramSignature::ProgramSignature(const GraphJson& graph_module) {
  try {
    const GraphJson& signature = graph_module.at("module_call_graph").at(0).at("signature");
    const GraphJson spec = parse_json(signature.at("in_spec").get<std::string>()).at(1);
    const GraphJson names_of_tuples = graph_module.value("treespec_namedtuple_fields", GraphJson());
    const GraphJson& arguments = spec.at("children_spec").at(0).at("children_spec");
    const GraphJson& names = signature.at("forward_arg_names");
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool has_name = i < names.size();
      read(arguments[i], {{has_name ? std::optional(names[i].get<std::string>()) : std::nullopt, {}}},
           names_of_tuples);
    }
    read(spec.at("children_spec").at(1), {}, names_of_tuples);
  } catch (const std::exception&) {
    leaves_.clear();
  }
}

void ProgramSignature::read(const GraphJson& tree, const std::vector<PathStep>& path,
                            const GraphJson& names_of_tuples) {
  if (tree.at("type").is_null()) {
    leaves_.push_back(path);
    return;
  }
  const GraphJson keys = keys_of(tree, names_of_tuples);
  const bool is_dict = tree.at("type").get<std::string>().find("ict") != std::string::npos;
  const GraphJson& children = tree.at("children_spec");
  for (size_t i = 0; i < children.size(); ++i) {
    PathStep step;
    if (keys.is_array() && keys.at(i).is_string()) step.key = keys[i].get<std::string>();
    if (!is_dict) step.index = i;
    if (is_dict && keys.is_array() && keys.at(i).is_number_integer()) step.index = as_integer(keys[i]);
    std::vector<PathStep> further = path;
    further.push_back(std::move(step));
    read(children[i], further, names_of_tuples);
  }
}

std::optional<size_t> ProgramSignature::find(std::vector<PathStep> path) const {
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (is_reached(leaves_[i], path)) return i;
  }
  if (path.size() < 2 || !path[0].key || !path[1].index) return {};
  if (path.size() == 2 && path[0].key == "flat_args") return path[1].index;  // as strict exports write
  // Of *args, whose names in the signature are args_0, args_1.
  path[1].key = *path[0].key + '_' + std::to_string(*path[1].index);
  path[1].index.reset();
  path.erase(path.begin());
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (is_reached(leaves_[i], path)) return i;
  }
  return {};
}

}  // namespace lensbox
