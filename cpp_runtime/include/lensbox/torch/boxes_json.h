#pragma once

#include <ATen/core/Tensor.h>
#include <lensbox/api.h>
#include <lensbox/detection.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lensbox {

// Boxes as a float64 tensor [N, 4] or [B, N, 4], from one of:
//   nested arrays [N][4] or [B][N][4];
//   {"boxes": nested arrays};
//   {"images": [{"detections": [{"box": [x1, y1, x2, y2], ...}, ...]}, ...]}, as `lensbox_runner detect`
//   prints:
//     [N, 4] for one image, else [B, N, 4] where images with fewer detections are filled up with zero boxes.
// An empty array is [0, 4]. Throws InputError, which names `argument`, the element, the rule and the value.
LENSBOX_API at::Tensor parse_boxes(const nlohmann::ordered_json& document, const std::string& argument);

// [{"box": [x1, y1, x2, y2], "score": s, "label": "car", "extras": {"name": [[x, y], ...]}}, ...]: labels by
// name, where there are classes, and extras, where there are some, nested as their shapes say. classes,
// extras: those of the artifact. What is not finite becomes null.
LENSBOX_API nlohmann::ordered_json to_json(const std::vector<Detection>& detections,
                                           const std::vector<std::string>& classes = {},
                                           const std::vector<Extra>& extras = {});

// The double whose shortest decimal form is that of `value`, so that 0.3f is printed as 0.3 and reads back as
// the same float.
LENSBOX_API double shortest_decimal(float value);

}  // namespace lensbox
