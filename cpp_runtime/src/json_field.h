#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace lensbox {

// The tensors are float32.
inline constexpr double kMaxFloat32 = std::numeric_limits<float>::max();

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

  JsonField operator[](const std::string& key) const;  // of an object
  bool has(const char* key) const;
  std::vector<std::string> keys() const;  // in the order of the file

  void expect_object() const;
  std::string text() const;
  std::string identifier() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number(double least, double most) const;

  // The items of a list, of which there may be `most`; `what` they are, for the message.
  std::vector<JsonField> list(size_t most = SIZE_MAX, const char* what = "items") const;
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
