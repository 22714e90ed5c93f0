#include "file/json.h"

#include <regex>
#include <set>
#include <sstream>
#include <type_traits>

namespace lensbox {
namespace {

using Json = nlohmann::ordered_json;

std::string excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

template <class Number>
bool is_between(const Json& value, Number least, Number most) {
  if constexpr (std::is_integral_v<Number>) {
    if (!value.is_number_integer()) return false;
    // Beyond 2^63 - 1 a JSON integer is unsigned, and get<int64_t> would wrap it.
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return false;
  }
  return value.is_number() && value.get<Number>() >= least && value.get<Number>() <= most;
}

// A look-up in an ordered_json takes time in proportion to its number of keys.
constexpr size_t kMostKeys = 1000;

}  // namespace

nlohmann::ordered_json parse_strict_json(std::string_view text, int max_depth) {
  if (text.starts_with("\xEF\xBB\xBF")) throw JsonError("it begins with a byte order mark");
  // The parser would read a NUL as the end of the text.
  if (text.find('\0') != std::string_view::npos) throw JsonError("it has a NUL character");
  std::vector<std::set<std::string>> keys(1);  // of the object or array at each depth
  const auto check = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= max_depth) {
        throw JsonError("it is nested too deeply, more than " + std::to_string(max_depth) + " levels");
      }
      keys.resize(depth + 1);
      keys.emplace_back();
    } else if (event == Json::parse_event_t::key) {
      if (!keys[depth].insert(parsed.get<std::string>()).second) {
        throw JsonError("an object has the key " + parsed.dump() + " twice");
      }
      if (keys[depth].size() > kMostKeys) {
        throw JsonError("an object has more than " + std::to_string(kMostKeys) + " keys");
      }
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception& error) {
    throw JsonError(error.what());
  }
}

JsonField JsonField::operator[](const std::string& key) const {
  const std::string place = place_.empty() ? key : place_ + "." + key;
  expect_object();
  const auto found = value_.find(key);
  if (found == value_.end()) throw JsonError("there is no " + place);
  return {*found, place};
}

bool JsonField::has(const char* key) const {
  expect_object();
  return value_.contains(key);
}

std::vector<std::string> JsonField::keys() const {
  expect_object();
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_.items()) {
    keys.push_back(key);
  }
  return keys;
}

void JsonField::expect_object() const {
  if (!value_.is_object()) fail("must be an object");
}

std::string JsonField::text() const {
  if (!value_.is_string()) fail("must be a string");
  return value_.get<std::string>();
}

std::string JsonField::matching(const char* pattern) const {
  const std::string value = text();
  // The matcher calls itself for each character, so a longer text would overflow the stack.
  constexpr size_t kLongest = 1000;
  if (value.size() > kLongest || !std::regex_match(value, std::regex(pattern))) {
    fail(std::string("must match the pattern ") + pattern);
  }
  return value;
}

template <class Number>
Number JsonField::between(Number least, Number most) const {
  if (is_between(value_, least, most)) return value_.get<Number>();
  std::ostringstream rule;
  rule << "must be " << (std::is_integral_v<Number> ? "an integer" : "a number") << " from " << least
       << " to " << most;
  fail(rule.str());
}

template <class Number>
std::vector<Number> JsonField::all_between(Number least, Number most) const {
  std::vector<Number> values;
  for (const Json& value : array()) {
    if (!is_between(value, least, most)) element(values.size()).between(least, most);  // throws
    values.push_back(value.get<Number>());
  }
  return values;
}

template int64_t JsonField::between(int64_t, int64_t) const;
template double JsonField::between(double, double) const;
template std::vector<int64_t> JsonField::all_between(int64_t, int64_t) const;
template std::vector<double> JsonField::all_between(double, double) const;

std::array<double, 4> JsonField::box() const {
  const std::vector<double> edges = numbers(-kMaxFloat32, kMaxFloat32);
  if (edges.size() != 4) fail("must be a box, four numbers [x1, y1, x2, y2]");
  return {edges[0], edges[1], edges[2], edges[3]};
}

std::vector<JsonField> JsonField::list(size_t most, const char* what) const {
  if (array().size() > most) fail("must be at most " + std::to_string(most) + " " + what);
  std::vector<JsonField> fields;
  for (size_t i = 0; i < array().size(); ++i) {
    fields.push_back(element(i));
  }
  return fields;
}

void JsonField::fail(const std::string& rule) const {
  throw JsonError((place_.empty() ? "the document" : place_) + " " + rule + ", got " + excerpt(value_));
}

const Json& JsonField::array() const {
  if (!value_.is_array()) fail("must be a list");
  return value_;
}

JsonField JsonField::element(size_t index) const {
  return {value_[index], place_ + "[" + std::to_string(index) + "]"};
}

}  // namespace lensbox
