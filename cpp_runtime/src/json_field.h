#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace lensbox {

// A value in a JSON document is absent or not what it must be; the message names its place, the rule and the
// value.
struct FieldError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A value inside a JSON document that knows its place, such as "image.shape". The document must outlive it.
// All methods throw FieldError. Booleans are no numbers here, and 1.0 is no integer.
class JsonField {
 public:
  JsonField(const nlohmann::ordered_json& value, std::string place)
      : value_(value), place_(std::move(place)) {}

  JsonField operator[](const char* key) const;  // of an object

  void expect_object() const;
  std::string text() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number(double least, double most) const;

  std::vector<JsonField> list() const;
  std::vector<int64_t> integers(int64_t least, int64_t most) const;
  std::vector<double> numbers(double least, double most) const;

  [[noreturn]] void fail(const std::string& rule) const;

 private:
  const nlohmann::ordered_json& array() const;
  JsonField element(size_t index) const;

  const nlohmann::ordered_json& value_;
  std::string place_;
};

}  // namespace lensbox
