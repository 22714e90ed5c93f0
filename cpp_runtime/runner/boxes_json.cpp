#include "boxes_json.h"

#include <ATen/ATen.h>
#include <lensbox/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <tuple>
#include <utility>
#include <variant>

namespace {

using lensbox::InputError;

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& where, const std::string& rule, const Json& value) {
  std::string text = value.dump();
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  throw InputError(where + ": " + rule + ", got " + text);
}

std::string element(const std::string& where, size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

const Json& array_at(const Json& object, const char* key, const std::string& where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_array()) {
    fail(where, std::string("must be an object with an array \"") + key + "\"", object);
  }
  return *found;
}

void append_box(const Json& box, const std::string& where, std::vector<double>& values) {
  if (!box.is_array() || box.size() != 4) fail(where, "a box must be four numbers [x1, y1, x2, y2]", box);
  for (size_t k = 0; k < 4; ++k) {
    if (!box[k].is_number()) fail(element(where, k), "must be a number", box[k]);
    values.push_back(box[k].get<double>());
  }
}

void append_boxes(const Json& boxes, const std::string& where, std::vector<double>& values) {
  for (size_t i = 0; i < boxes.size(); ++i) {
    append_box(boxes[i], element(where, i), values);
  }
}

at::Tensor make_tensor(const std::vector<double>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kDouble).reshape(shape);
}

at::Tensor parse_nested_arrays(const Json& boxes, const std::string& where) {
  if (!boxes.is_array()) fail(where, "must be nested arrays [N][4] or [B][N][4] of numbers", boxes);
  const auto outer = static_cast<int64_t>(boxes.size());
  std::vector<double> values;
  // The elements of the first element tell boxes [N][4] from a batch [B][N][4].
  const bool is_batch = outer > 0 && boxes[0].is_array() && (boxes[0].empty() || boxes[0][0].is_array());
  if (!is_batch) {
    append_boxes(boxes, where, values);
    return make_tensor(values, {outer, 4});
  }
  for (size_t b = 0; b < boxes.size(); ++b) {
    if (!boxes[b].is_array() || boxes[b].size() != boxes[0].size()) {
      fail(element(where, b),
           "every image of a batch must have the same number of boxes (" + std::to_string(boxes[0].size()) +
               ", pad with zeros)",
           boxes[b]);
    }
    append_boxes(boxes[b], element(where, b), values);
  }
  return make_tensor(values, {outer, static_cast<int64_t>(boxes[0].size()), 4});
}

at::Tensor parse_detect_output(const Json& document, const std::string& argument) {
  const Json& images = array_at(document, "images", argument);
  std::vector<std::vector<double>> images_values;
  size_t most = 0;
  for (size_t b = 0; b < images.size(); ++b) {
    const std::string where = element(argument + ".images", b);
    const Json& detections = array_at(images[b], "detections", where);
    std::vector<double> values;
    for (size_t i = 0; i < detections.size(); ++i) {
      const std::string place = element(where + ".detections", i);
      append_box(array_at(detections[i], "box", place), place + ".box", values);
    }
    most = std::max(most, values.size());
    images_values.push_back(std::move(values));
  }

  std::vector<double> padded;
  for (std::vector<double>& values : images_values) {
    values.resize(most);
    padded.insert(padded.end(), values.begin(), values.end());
  }
  const auto batch = static_cast<int64_t>(images.size());
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
  if (!document.is_object()) return parse_nested_arrays(document, argument);
  if (document.contains("images")) return parse_detect_output(document, argument);
  if (document.contains("boxes")) return parse_nested_arrays(document["boxes"], argument + ".boxes");
  fail(argument, "an object must have \"boxes\", or \"images\" as printed by detect", document);
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
