
#include <algorithm>
#include <vector>

#include "file/errors.h"
#include "model/onnx_session.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAny = -1;

// The type and shape of an input or output: one of the types; any size in place of kAny.
struct Rule {
  std::string name;
  std::vector<std::string> types;
  std::vector<int64_t> shape;
};

std::string described(const std::vector<std::string>& types, const std::vector<int64_t>& shape) {
  std::string text;
  for (const std::string& type : types) {
    text += (text.empty() ? "" : " or ") + type;
  }
  text += " [";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + (shape[i] < 0 ? "any" : std::to_string(shape[i]));
  }
  return text + "]";
}

template <class Item>
std::string names(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) {
    text += (text.empty() ? "" : ", ") + item.name;
  }
  return text;
}

bool fits(const OnnxValue& value, const Rule& rule) {
  const auto same_size = [](int64_t size, int64_t wanted) { return wanted == kAny || size == wanted; };
  return std::ranges::find(rule.types, value.type) != rule.types.end() &&
         std::ranges::equal(value.shape, rule.shape, same_size);
}

void check_values(const fs::path& artifact, const std::string& kind, const std::vector<OnnxValue>& values,
                  const std::vector<Rule>& rules) {
  if (!std::ranges::equal(values, rules, {}, &OnnxValue::name, &Rule::name)) {
    fail_artifact(artifact, "does not fit its lensbox.json: the model must have the " + kind + "s " +
                                names(rules) + ", it has " + names(values));
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    const OnnxValue& value = values[i];
    if (fits(value, rules[i])) continue;
    fail_artifact(artifact, "does not fit its lensbox.json: its " + kind + " " + value.name + " must be " +
                                described(rules[i].types, rules[i].shape) + ", it is " +
                                described({value.type}, value.shape));
  }
}

std::vector<Rule> input_rules(const Canvas& canvas) {
  return {{"images", {"uint8"}, {kAny, canvas.channels, canvas.height, canvas.width}},
          {"score_threshold", {"float"}, {}},
          {"iou_threshold", {"float"}, {}}};
}

std::vector<Rule> output_rules(const Metadata& metadata) {
  std::vector<Rule> rules{{"boxes", {"float"}, {kAny, kAny, 4}},
                          {"scores", {"float"}, {kAny, kAny}},
                          {"counts", {"int32", "int64"}, {kAny}}};
  if (!metadata.classes.empty()) rules.push_back({"labels", {"int64"}, {kAny, kAny}});
  for (const Extra& extra : metadata.extras) {
    Rule rule{extra.name, {"float"}, {kAny, kAny}};
    if (extra.kind == ExtraKind::kValues) rule.types.emplace_back("int64");
    rule.shape.insert(rule.shape.end(), extra.shape.begin(), extra.shape.end());
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace

void check_contract(const fs::path& artifact, const OnnxSession& session, const Metadata& metadata) {
  check_values(artifact, "input", session.inputs(), input_rules(metadata.reading.canvas));
  check_values(artifact, "output", session.outputs(), output_rules(metadata));
}

}  // namespace lensbox
