#include <lensbox/error.h>
#include <lensbox/torch/metadata.h>
#include <lensbox/torch/strict_json.h>

#include <algorithm>

#include "identifier.h"
#include "json_field.h"
#include "op_schema.h"
#include "self_test_fields.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;
constexpr size_t kMostOps = 1000;
constexpr int64_t kMaxCanvasSide = 1 << 14;
constexpr int64_t kMaxJpegOversampling = 1000;

[[noreturn]] void fail(const fs::path& artifact, const std::string& reason) {
  throw ArtifactError("artifact " + artifact.string() + ": " + reason);
}

// A newer format need not have the fields of this one, so this comes first.
int64_t read_format_version(const JsonField& root, const Json& document, const fs::path& artifact) {
  const int64_t version = root["format_version"].integer(1, INT64_MAX);
  if (version <= kFormatVersion) return version;
  const auto writer = document.find("lensbox_version");
  const bool is_given = writer != document.end() && writer->is_string();
  fail(artifact, "has format version " + std::to_string(version) + ", this program reads up to " +
                     std::to_string(kFormatVersion) + ": a newer Lensbox wrote it (" +
                     (is_given ? writer->get<std::string>() : "version not given") + ")");
}

std::vector<std::string> read_ops(const JsonField& field) {
  const std::vector<JsonField> items = field.list();
  if (items.size() > kMostOps) field.fail("must be at most " + std::to_string(kMostOps) + " ops");
  std::vector<std::string> ops;
  for (const JsonField& item : items) {
    ops.push_back(item.text());
    if (const auto fault = op_schema_fault(ops.back())) item.fail(*fault);
  }
  return ops;
}

std::vector<std::string> read_methods(const JsonField& field) {
  std::vector<std::string> methods;
  for (const JsonField& item : field.list()) {
    methods.push_back(item.text());
    if (!is_identifier(methods.back())) item.fail("must be an identifier");
  }
  return methods;
}

Canvas read_canvas(const JsonField& field) {
  const JsonField channels = field["channels"];
  if (channels.integer(1, 3) == 2) channels.fail("must be 1 or 3");
  return {.height = field["height"].integer(1, kMaxCanvasSide),
          .width = field["width"].integer(1, kMaxCanvasSide),
          .channels = channels.integer(1, 3),
          .fill = field["fill"].integer(0, 255)};
}

Reading read_reading(const JsonField& field) {
  const std::string orientation = field["orientation"].text();
  if (orientation != "exif" && orientation != "stored") {
    field["orientation"].fail("must be \"exif\" or \"stored\"");
  }
  return {.orientation = orientation == "exif" ? Orientation::kExif : Orientation::kStored,
          .jpeg_oversampling = field["jpeg_oversampling"].integer(0, kMaxJpegOversampling)};
}

Metadata read_fields(Json document, const fs::path& artifact) {
  const JsonField root(document, "");
  Metadata metadata{};
  metadata.format_version = read_format_version(root, document, artifact);
  for (const char* key : {"name", "lensbox_version", "weights_sha256"}) {
    root[key].text();
  }
  for (const char* key : {"input", "output"}) {
    root[key].expect_object();
  }
  if (metadata.format_version != kSingleImageFormat) {
    metadata.reading = {.canvas = read_canvas(root["canvas"]), .reading = read_reading(root["reading"])};
  }
  metadata.torch_version = root["torch_version"].text();
  metadata.ops = read_ops(root["ops"]);
  metadata.methods = read_methods(root["methods"]);
  metadata.score_threshold = root["defaults"]["score_threshold"].number(0, 1);
  metadata.iou_threshold = root["defaults"]["iou_threshold"].number(0, 1);
  try {
    metadata.self_test = read_self_test(root["self_test"]);
  } catch (const FieldError& error) {
    fail(artifact, std::string("its self-test is damaged: in lensbox.json, ") + error.what());
  }
  metadata.document = std::move(document);
  return metadata;
}

}  // namespace

Metadata parse_metadata(std::string_view text, const fs::path& artifact) {
  try {
    return read_fields(parse_strict_json(text, kMaxDepth), artifact);
  } catch (const JsonError& error) {
    fail(artifact, std::string("its lensbox.json is damaged: ") + error.what());
  } catch (const FieldError& error) {
    fail(artifact, std::string("its lensbox.json is damaged: ") + error.what());
  }
}

}  // namespace lensbox
