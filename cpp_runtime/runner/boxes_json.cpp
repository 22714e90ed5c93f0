#include "boxes_json.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pad_sequence.h>
#include <ATen/ops/tensor.h>
#include <lensbox/error.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "detections_json.h"
#include "file/json.h"

namespace {

using Json = nlohmann::ordered_json;
using lensbox::JsonField;

// The boxes of one image, four numbers each.
std::vector<double> numbers_of(const std::vector<JsonField>& boxes) {
  std::vector<double> values;
  for (const JsonField& box : boxes) {
    std::ranges::copy(box.box(), std::back_inserter(values));
  }
  return values;
}

at::Tensor make_tensor(const std::vector<double>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kDouble).reshape(shape);
}

// boxes: as read from `json`, [N][4] or [B][N][4].
at::Tensor parse_nested_arrays(const JsonField& boxes, const Json& json) {
  const std::vector<JsonField> outer = boxes.list();
  const auto size = static_cast<int64_t>(outer.size());
  // The first element tells boxes [N][4] from a batch [B][N][4].
  const bool is_batch = size > 0 && json[0].is_array() && (json[0].empty() || json[0][0].is_array());
  if (!is_batch) return make_tensor(numbers_of(outer), {size, 4});
  const auto slots = static_cast<int64_t>(json[0].size());
  std::vector<double> values;
  for (const JsonField& image : outer) {
    const std::vector<double> of_image = numbers_of(image.list());
    if (std::ssize(of_image) != 4 * slots) {
      image.fail("must have as many boxes as the first image of the batch (" + std::to_string(slots) +
                 ", pad with zeros)");
    }
    values.insert(values.end(), of_image.begin(), of_image.end());
  }
  return make_tensor(values, {size, slots, 4});
}

at::Tensor parse_detect_output(const JsonField& images) {
  std::vector<at::Tensor> boxes;
  for (const JsonField& image : images.list()) {
    std::vector<JsonField> of_image;
    for (const JsonField& detection : image["detections"].list()) {
      of_image.push_back(detection["box"]);
    }
    boxes.push_back(make_tensor(numbers_of(of_image), {std::ssize(of_image), 4}));
  }
  if (boxes.empty()) return at::empty({0, 0, 4}, at::kDouble);
  return boxes.size() == 1 ? boxes[0] : at::pad_sequence(boxes, /*batch_first=*/true);
}

}  // namespace

at::Tensor parse_boxes(const Json& document, const std::string& argument) {
  const JsonField root(document, argument);
  if (!document.is_object()) return parse_nested_arrays(root, document);
  if (root.has("images")) return parse_detect_output(root["images"]);
  if (root.has("boxes")) return parse_nested_arrays(root["boxes"], document["boxes"]);
  root.fail("must have \"boxes\", or \"images\" as printed by detect");
}

Json to_json(const at::Tensor& numbers) {
  const at::Tensor rows = numbers.contiguous();
  const auto* next = rows.const_data_ptr<double>();
  return nested(next, std::span<const int64_t>(rows.sizes().begin(), rows.sizes().size()));
}
