#pragma once

#include <lensbox/error.h>

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// A text is not JSON or has two meanings, or a value in it is absent or breaks a rule. The message names the
// place, the rule and the value.
struct JsonError : InputError {
  using InputError::InputError;
};

// Parse JSON that has one meaning only: UTF-8 without byte order mark, no object with two equal keys, every
// number within the range of a double. Nesting is at most `max_depth` deep and an object has at most 1,000
// keys, which bounds stack and time. Throws JsonError.
nlohmann::ordered_json parse_strict_json(std::string_view text, int max_depth);

// Bounds numbers that become float32.
inline constexpr double kMaxFloat32 = std::numeric_limits<float>::max();

// A value inside a JSON document, with its place, such as "image.shape". The document must outlive it. All
// methods throw JsonError. Booleans are no numbers here, and 1.0 is no integer.
class JsonField {
 public:
  JsonField(const nlohmann::ordered_json& value, std::string place)
      : value_(value), place_(std::move(place)) {}

  JsonField operator[](const std::string& key) const;  // of an object
  bool has(const char* key) const;
  std::vector<std::string> keys() const;  // in the order of the file

  void expect_object() const;
  std::string text() const;
  // Return a string that a regular expression (ECMAScript's) matches as a whole.
  std::string matching(const char* pattern) const;
  int64_t integer(int64_t least, int64_t most) const { return between(least, most); }
  double number(double least, double most) const { return between(least, most); }

  // Return the items of a list of at most `most` items; `what` names the items in the message.
  std::vector<JsonField> list(size_t most = SIZE_MAX, const char* what = "items") const;
  std::vector<int64_t> integers(int64_t least, int64_t most) const { return all_between(least, most); }
  std::vector<double> numbers(double least, double most) const { return all_between(least, most); }
  std::array<double, 4> box() const;  // of numbers x1, y1, x2, y2 that fit float32

  [[noreturn]] void fail(const std::string& rule) const;

 private:
  template <class Number>
  Number between(Number least, Number most) const;
  template <class Number>
  std::vector<Number> all_between(Number least, Number most) const;

  const nlohmann::ordered_json& array() const;
  JsonField element(size_t index) const;

  const nlohmann::ordered_json& value_;
  std::string place_;
};

inline constexpr const char* kIdentifier = "[A-Za-z_][A-Za-z0-9_]{0,999}";

}  // namespace lensbox
