#include "file/metadata.h"

#include <lensbox/error.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include "file/errors.h"
#include "fit_words.h"  // of the op library

namespace lensbox {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;
constexpr int kMaxSchemaDepth = 16;
constexpr double kMaxNumber = 1e6;  // of a mean, a standard deviation, and its inverse

// Check the version first, because another format need not have the fields of this one.
int64_t read_format_version(const JsonField& root, const Json& document, const fs::path& artifact) {
  const int64_t version = root["format_version"].integer(1, INT64_MAX);
  if (version == kFormatVersion) return version;
  const auto writer = document.find("lensbox_version");
  const bool is_given = writer != document.end() && writer->is_string();
  fail_artifact(artifact, "has format version " + std::to_string(version) + ", this program reads version " +
                              std::to_string(kFormatVersion) + " only: export the detector again (Lensbox " +
                              (is_given ? writer->get<std::string>() : "of a version not given") +
                              " wrote the file)");
}

// Return whether torch's parser of op schemas, which calls itself for each bracket, can read a text without
// overflowing the stack.
bool is_parsable(std::string_view schema) {
  int depth = 0;
  for (const char c : schema) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth > kMaxSchemaDepth) return false;
  }
  return true;
}

// Read the texts of a list, one by one.
template <class Read>
std::vector<std::string> read_texts(const std::vector<JsonField>& items, Read read) {
  std::vector<std::string> texts;
  std::ranges::transform(items, std::back_inserter(texts), read);
  return texts;
}

std::string read_op(const JsonField& field) {
  const std::string schema = field.text();
  if (is_parsable(schema)) return schema;
  field.fail("must be an op schema with brackets at most " + std::to_string(kMaxSchemaDepth) + " deep");
}

// Count the characters of UTF-8: each but the first byte of a character begins with the bits 10.
size_t characters(const std::string& text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; });
}

bool is_taken(const std::string& name) {
  return name == "boxes" || name == "scores" || name == "counts" || name == "labels";
}

std::vector<int64_t> read_shape(const JsonField& field) {
  const std::vector<int64_t> shape = field.integers(1, kMostNumbers);
  if (shape.size() > kMostDimensions) {
    field.fail("must be at most " + std::to_string(kMostDimensions) + " sizes");
  }
  int64_t product = 1;
  for (const int64_t size : shape) {
    product *= size;  // does not overflow: both are at most 2^16
    if (product > kMostNumbers) {
      field.fail("must have at most " + std::to_string(kMostNumbers) + " numbers");
    }
  }
  return shape;
}

Extra read_extra(const std::string& name, const JsonField& field) {
  if (!std::regex_match(name.substr(0, kMostCharacters), std::regex(kIdentifier)) || is_taken(name)) {
    field.fail("must have a name that is an identifier other than boxes, scores, counts and labels");
  }
  const std::string kind = field["kind"].matching("points|values");
  Extra extra{.name = name,
              .shape = read_shape(field["shape"]),
              .kind = kind == "points" ? ExtraKind::kPoints : ExtraKind::kValues};
  if (extra.kind == ExtraKind::kPoints && (extra.shape.empty() || extra.shape.back() != 2)) {
    field["shape"].fail("must end with 2, as points do");
  }
  return extra;
}

std::string read_class(const JsonField& field) {
  const std::string name = field.text();
  const size_t length = characters(name);
  if (length >= 1 && length <= kMostCharacters) return name;
  field.fail("must be a name of 1 to " + std::to_string(kMostCharacters) + " characters");
}

std::vector<std::string> read_classes(const JsonField& root) {
  if (!root.has("classes")) return {};
  std::vector<std::string> names = read_texts(root["classes"].list(kMostClasses, "names"), read_class);
  if (std::set(names.begin(), names.end()).size() < names.size()) {
    root["classes"].fail("must be different names");
  }
  return names;
}

std::vector<Extra> read_extras(const JsonField& root) {
  if (!root.has("extras")) return {};
  const JsonField field = root["extras"];
  const std::vector<std::string> names = field.keys();
  if (names.size() > kMostExtras) {
    field.fail("must be at most " + std::to_string(kMostExtras) + " outputs");
  }
  std::vector<Extra> extras;
  for (const std::string& name : names) {
    extras.push_back(read_extra(name, field[name]));
  }
  return extras;
}

// Return the pattern of words, such as "letterbox|stretch".
template <class Words>
std::string any_of(const Words& words) {
  std::string pattern;
  for (const auto& [word, value] : words) {
    pattern.append(pattern.empty() ? "" : "|").append(word);
  }
  return pattern;
}

Canvas read_canvas(const JsonField& field) {
  const JsonField channels = field["channels"];
  if (channels.integer(1, 3) == 2) channels.fail("must be 1 or 3");
  Canvas canvas{.height = field["height"].integer(1, kMaxCanvasSide),
                .width = field["width"].integer(1, kMaxCanvasSide),
                .channels = channels.integer(1, 3),
                .fill = field["fill"].integer(0, 255)};
  if (field.has("fit")) canvas.fit = field["fit"].matching(any_of(kFitModes).c_str());
  if (field.has("filter")) canvas.filter = field["filter"].matching(any_of(kFilters).c_str());
  if (field.has("order")) canvas.order = field["order"].matching("rgb|bgr");
  if (field.has("mean")) canvas.mean = field["mean"].numbers(-kMaxNumber, kMaxNumber);
  if (field.has("std")) canvas.std = field["std"].numbers(1 / kMaxNumber, kMaxNumber);
  if (!canvas.mean.empty() && std::ssize(canvas.mean) != canvas.channels) {
    field["mean"].fail("must be numbers, one for each channel, or none");
  }
  if (canvas.std.size() != canvas.mean.size()) field["std"].fail("must be numbers, as many as mean");
  return canvas;
}

Reading read_reading(const JsonField& field, const Canvas& canvas) {
  const std::string orientation = field["orientation"].matching("exif|stored");
  return {.canvas = canvas,
          .orientation = orientation == "exif" ? Orientation::kExif : Orientation::kStored,
          .jpeg_oversampling = field["jpeg_oversampling"].integer(0, kMaxJpegOversampling)};
}

Precision read_precision(const JsonField& root) {
  if (!root.has("precision")) return Precision::kFloat32;
  const std::map<std::string, Precision> dtypes{
      {"tf32", Precision::kTf32}, {"float16", Precision::kFloat16}, {"bfloat16", Precision::kBfloat16}};
  const JsonField field = root["precision"];
  field["device"].matching(kIdentifier);
  for (const char* count : {"pictures", "detections"}) {
    field[count].integer(0, INT32_MAX);
  }
  for (const char* change : {"median_box_change", "max_box_change", "max_score_change"}) {
    field[change].number(0, kMaxFloat32);
  }
  return dtypes.at(field["dtype"].matching("tf32|float16|bfloat16"));
}

std::optional<Compiled> read_compiled(const JsonField& root) {
  if (!root.has("compiled")) return std::nullopt;
  const JsonField field = root["compiled"];
  Compiled compiled{
      .device = field["device"].matching("cpu|cuda"),
      .torch_version = field["torch_version"].text(),
      .platform = field["platform"].text(),
      .cpu_features = read_texts(field["cpu_features"].list(kMostCpuFeatures, "names"),
                                 [](const JsonField& item) { return item.matching("[a-z0-9_.]{1,40}"); }),
      .gpu_architecture = field["gpu_architecture"].matching("([a-z0-9_.]{1,40})?")};
  if (compiled.gpu_architecture.empty() != (compiled.device == "cpu")) {
    field["gpu_architecture"].fail("must be \"\" for a CPU, else a name such as \"sm_90\"");
  }
  return compiled;
}

Metadata read_fields(const Json& document, const fs::path& artifact) {
  const JsonField root(document, "");
  Metadata metadata{};
  metadata.format_version = read_format_version(root, document, artifact);
  metadata.name = root["name"].text();
  metadata.lensbox_version = root["lensbox_version"].text();
  root["weights_sha256"].text();
  for (const char* key : {"input", "output"}) {
    root[key].expect_object();
  }
  metadata.reading = read_reading(root["reading"], read_canvas(root["canvas"]));
  metadata.classes = read_classes(root);
  metadata.extras = read_extras(root);
  metadata.precision = read_precision(root);
  metadata.compiled = read_compiled(root);
  if (root.has("batch")) metadata.batch = root["batch"].integer(1, INT32_MAX);
  metadata.torch_version = root["torch_version"].text();
  metadata.ops = read_texts(root["ops"].list(kMostOps, "ops"), read_op);
  metadata.methods =
      read_texts(root["methods"].list(), [](const JsonField& item) { return item.matching(kIdentifier); });
  metadata.score_threshold = root["defaults"]["score_threshold"].number(0, 1);
  metadata.iou_threshold = root["defaults"]["iou_threshold"].number(0, 1);
  metadata.self_test = read_self_test(root["self_test"], metadata.classes.size(), metadata.extras);
  metadata.json = document.dump();
  return metadata;
}

}  // namespace

Metadata parse_metadata(std::string_view text, const fs::path& artifact) {
  try {
    return read_fields(parse_strict_json(text, kMaxDepth), artifact);
  } catch (const JsonError& error) {
    fail_artifact(artifact, std::string("has an unusable lensbox.json: ") + error.what());
  }
}

}  // namespace lensbox
