#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <string>

// Return boxes as a float64 tensor [N, 4] or [B, N, 4], from one of:
//   nested arrays [N][4] or [B][N][4];
//   {"boxes": nested arrays};
//   {"images": [{"detections": [{"box": [x1, y1, x2, y2], ...}, ...]}, ...]}, as `lensbox_runner detect`
//   prints:
//     [N, 4] for one image, else [B, N, 4], images with fewer detections filled up with zero boxes.
// An empty array is [0, 4]. Throws InputError, which names `argument`, the element, the rule and the value.
at::Tensor parse_boxes(const nlohmann::ordered_json& document, const std::string& argument);

// Return numbers, float64 on the CPU, as nested arrays of the tensor's shape.
nlohmann::ordered_json to_json(const at::Tensor& numbers);
