#pragma once

#include <lensbox/metadata.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

// Return [{"box": [x1, y1, x2, y2], "score": s, "label": "car", "extras": {"name": [[x, y], ...]}}, ...]:
// labels by name, if there are classes, and extras, if there are some, nested as their shapes say. NaN and
// infinity become null.
nlohmann::ordered_json to_json(const std::vector<lensbox::Detection>& detections,
                               const lensbox::Metadata& metadata);

// Nest numbers, taken row by row from `next` on, in arrays of the shape. Number: float, double or int64_t.
template <class Number>
nlohmann::ordered_json nested(const Number*& next, std::span<const int64_t> shape);
