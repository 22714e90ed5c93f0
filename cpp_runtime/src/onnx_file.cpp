#include "onnx_file.h"

#include <ATen/Parallel.h>
#include <lensbox/error.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "artifact_file.h"
#include "onnx_session.h"
#include "sha256.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr char kFirstField = '\x08';  // ModelProto.ir_version, which every writer puts first
// ModelProto.metadata_props (field 14), a pair of strings: key (1) and value (2), each behind its length.
constexpr std::string_view kSeal = "\x72\x52\x0a\x0elensbox.sha256\x12\x40";
constexpr size_t kDigits = 64;

constexpr const char* kMetadata = "lensbox.json";
constexpr int64_t kAny = -1;

[[noreturn]] void fail(const fs::path& artifact, const std::string& reason) {
  throw ArtifactError("artifact " + artifact.string() + ": " + reason);
}

// What an input or output must be: of one of the types, and where a size is kAny, of whatever size.
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
    fail(artifact, "does not fit its lensbox.json: the model must have the " + kind + "s " + names(rules) +
                       ", it has " + names(values));
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    const OnnxValue& value = values[i];
    if (fits(value, rules[i])) continue;
    fail(artifact, "does not fit its lensbox.json: its " + kind + " " + value.name + " must be " +
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

Metadata read_metadata(const fs::path& artifact, const OnnxSession& session) {
  const std::optional<std::string> text = session.property(kMetadata);
  if (!text) fail(artifact, "an ONNX file, but without lensbox.json (a network alone has none)");
  if (text->size() > kMostMetadata) {
    fail(artifact, "its lensbox.json must be at most " + std::to_string(kMostMetadata) + " bytes, is " +
                       std::to_string(text->size()));
  }
  Metadata metadata = parse_metadata(*text, artifact);
  if (!metadata.reading.canvas) {
    fail(artifact, "its lensbox.json is damaged: its format version is 1, which ONNX files never had");
  }
  metadata.file_kind = FileKind::kOnnx;
  check_values(artifact, "input", session.inputs(), input_rules(*metadata.reading.canvas));
  check_values(artifact, "output", session.outputs(), output_rules(metadata));
  return metadata;
}

}  // namespace

bool looks_like_onnx(std::string_view bytes) {
  return bytes.starts_with(kFirstField);
}

std::string seal_fault(std::string_view bytes) {
  constexpr size_t kSize = kSeal.size() + kDigits;
  const std::string_view model = bytes.substr(0, bytes.size() - std::min(bytes.size(), kSize));
  const std::string_view seal = bytes.substr(model.size());
  if (!seal.starts_with(kSeal)) {
    return "no artifact as Lensbox wrote it: it does not end with its lensbox.sha256 (a damaged file, one "
           "that "
           "another program wrote or changed, or a network alone)";
  }
  if (sha256(model) != seal.substr(kSeal.size())) {
    return "damaged or changed: its bytes do not have its lensbox.sha256";
  }
  return "";
}

OnnxFile open_onnx_file(const fs::path& artifact, std::string_view bytes) {
  if (const std::string fault = seal_fault(bytes); !fault.empty()) fail(artifact, fault);
  std::shared_ptr<const OnnxSession> session = open_onnx_session(artifact, bytes, at::get_num_threads());
  Metadata metadata = read_metadata(artifact, *session);
  return {std::move(session), std::move(metadata)};
}

}  // namespace lensbox
