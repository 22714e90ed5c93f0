#include "detections_json.h"

#include <array>
#include <charconv>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace {

using Json = nlohmann::ordered_json;

// Return the double with the shortest decimal form of `value`: 0.3f is printed as 0.3 and reads back as the
// same float.
double shortest_decimal(float value) {
  std::array<char, 32> text;
  const char* const end = std::to_chars(text.begin(), text.end(), value).ptr;
  double parsed = 0;
  std::from_chars(text.begin(), end, parsed);
  return parsed;
}

}  // namespace

template <class Number>
Json nested(const Number*& next, std::span<const int64_t> shape) {
  if (shape.empty()) {
    const Number number = *next++;
    if constexpr (std::is_same_v<Number, float>) return shortest_decimal(number);
    return number;
  }
  Json rows = Json::array();
  for (int64_t i = 0; i < shape[0]; ++i) {
    rows.push_back(nested(next, shape.subspan(1)));
  }
  return rows;
}

template Json nested(const float*& next, std::span<const int64_t> shape);
template Json nested(const double*& next, std::span<const int64_t> shape);
template Json nested(const int64_t*& next, std::span<const int64_t> shape);

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
      entry["extras"][extras[i].name] = std::visit(
          [&](const auto& numbers) {
            const auto* next = numbers.data();
            return nested(next, std::span<const int64_t>(extras[i].shape));
          },
          detection.extras.at(i));
    }
    list.push_back(std::move(entry));
  }
  return list;
}
