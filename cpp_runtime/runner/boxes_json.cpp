#include "boxes_json.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <lensbox/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <tuple>
#include <utility>
#include <variant>

#include "file/json.h"

namespace {

using Json = nlohmann::ordered_json;
using lensbox::JsonField;

void append_box(const JsonField& box, std::vector<double>& values) {
  const std::vector<double> edges = box.numbers(-lensbox::kMaxFloat32, lensbox::kMaxFloat32);
  if (edges.size() != 4) box.fail("must be a box, four numbers [x1, y1, x2, y2]");
  values.insert(values.end(), edges.begin(), edges.end());
}

at::Tensor make_tensor(const std::vector<double>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kDouble).reshape(shape);
}

// boxes: as read from `json`, [N][4] or [B][N][4].
at::Tensor parse_nested_arrays(const JsonField& boxes, const Json& json) {
  const std::vector<JsonField> outer = boxes.list();
  const auto size = static_cast<int64_t>(outer.size());
  std::vector<double> values;
  // The first element tells boxes [N][4] from a batch [B][N][4].
  const bool is_batch = size > 0 && json[0].is_array() && (json[0].empty() || json[0][0].is_array());
  if (!is_batch) {
    for (const JsonField& box : outer) {
      append_box(box, values);
    }
    return make_tensor(values, {size, 4});
  }
  const auto slots = static_cast<int64_t>(json[0].size());
  for (const JsonField& image : outer) {
    const std::vector<JsonField> of_image = image.list();
    if (static_cast<int64_t>(of_image.size()) != slots) {
      image.fail("must have as many boxes as the first image of the batch (" + std::to_string(slots) +
                 ", pad with zeros)");
    }
    for (const JsonField& box : of_image) {
      append_box(box, values);
    }
  }
  return make_tensor(values, {size, slots, 4});
}

at::Tensor parse_detect_output(const JsonField& images) {
  std::vector<std::vector<double>> images_values;
  size_t most = 0;
  for (const JsonField& image : images.list()) {
    std::vector<double>& values = images_values.emplace_back();
    for (const JsonField& detection : image["detections"].list()) {
      append_box(detection["box"], values);
    }
    most = std::max(most, values.size());
  }

  std::vector<double> padded;
  for (std::vector<double>& values : images_values) {
    values.resize(most);
    padded.insert(padded.end(), values.begin(), values.end());
  }
  const auto batch = static_cast<int64_t>(images_values.size());
  const auto slots = static_cast<int64_t>(most / 4);
  if (batch == 1) return make_tensor(padded, {slots, 4});
  return make_tensor(padded, {batch, slots, 4});
}

Json number(int64_t value) {
  return value;
}

Json number(float value) {
  return shortest_decimal(value);
}

// Nest numbers, taken row by row from `next` on, in arrays of the remaining shape.
template <class Iterator>
Json nested(Iterator& next, std::span<const int64_t> shape) {
  if (shape.empty()) return number(*next++);
  Json rows = Json::array();
  for (int64_t i = 0; i < shape[0]; ++i) {
    rows.push_back(nested(next, shape.subspan(1)));
  }
  return rows;
}

Json nested(const lensbox::ExtraValues& values, const std::vector<int64_t>& shape) {
  return std::visit(
      [&](const auto& numbers) {
        auto next = numbers.begin();
        return nested(next, std::span(shape));
      },
      values);
}

}  // namespace

at::Tensor parse_boxes(const Json& document, const std::string& argument) {
  const JsonField root(document, argument);
  if (!document.is_object()) return parse_nested_arrays(root, document);
  if (root.has("images")) return parse_detect_output(root["images"]);
  if (root.has("boxes")) return parse_nested_arrays(root["boxes"], document["boxes"]);
  root.fail("must have \"boxes\", or \"images\" as printed by detect");
}

Json to_json(const std::vector<lensbox::Detection>& detections, const lensbox::Metadata& metadata) {
  const auto& [classes, extras] = std::tie(metadata.classes, metadata.extras);
  Json list = Json::array();
  for (const lensbox::Detection& detection : detections) {
    Json entry = {{"box", Json::array()}, {"score", shortest_decimal(detection.score)}};
    for (const float coordinate : detection.box) {
      entry["box"].push_back(shortest_decimal(coordinate));
    }
    if (!classes.empty()) entry["label"] = classes.at(detection.label);
    for (size_t i = 0; i < extras.size(); ++i) {
      entry["extras"][extras[i].name] = nested(detection.extras.at(i), extras[i].shape);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

double shortest_decimal(float value) {
  std::array<char, 32> text;
  const char* const end = std::to_chars(text.begin(), text.end(), value).ptr;
  double parsed = 0;
  std::from_chars(text.begin(), end, parsed);
  return parsed;
}
