#include "file/json.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace lensbox {
namespace {

using Json = nlohmann::ordered_json;

std::string excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

template <class Number>
std::string between(const char* what, Number least, Number most) {
  std::ostringstream rule;
  rule << "must be " << what << " from " << least << " to " << most;
  return rule.str();
}

bool is_integer_between(const Json& value, int64_t least, int64_t most) {
  if (!value.is_number_integer()) return false;
  // Beyond 2^63 - 1 a JSON integer is unsigned, and get<int64_t> would wrap it.
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return false;
  return value.get<int64_t>() >= least && value.get<int64_t>() <= most;
}

bool is_number_between(const Json& value, double least, double most) {
  return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
}

// Looking up a key in an ordered_json takes a time that grows with the number of keys.
constexpr size_t kMostKeys = 1000;

// Refuses texts that the parser itself would accept. Sees the events of the text and builds nothing.
class Inspector : public nlohmann::json_sax<Json> {
 public:
  explicit Inspector(int max_depth) : max_depth_(max_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }

  bool key(string_t& key) override {
    std::set<std::string>& keys = keys_.back();
    if (!keys.insert(key).second) throw JsonError("an object has the key " + Json(key).dump() + " twice");
    if (keys.size() > kMostKeys) {
      throw JsonError("an object has more than " + std::to_string(kMostKeys) + " keys");
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    throw JsonError(error.what());
  }

 private:
  bool enter() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) > max_depth_) {
      throw JsonError("it is nested too deeply, more than " + std::to_string(max_depth_) + " levels");
    }
    return true;
  }

  bool leave() {
    keys_.pop_back();
    return true;
  }

  int max_depth_;
  std::vector<std::set<std::string>> keys_;  // of each array (none) and object that is open
};

}  // namespace

nlohmann::ordered_json parse_strict_json(std::string_view text, int max_depth) {
  if (text.starts_with("\xEF\xBB\xBF")) throw JsonError("it begins with a byte order mark");
  // The parser would take it for the end of the text.
  if (text.find('\0') != std::string_view::npos) throw JsonError("it has a NUL character");
  Inspector inspector(max_depth);
  Json::sax_parse(text, &inspector);
  return Json::parse(text);
}

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}

bool is_identifier(std::string_view text) {
  return !text.empty() && !(text[0] >= '0' && text[0] <= '9') && std::ranges::all_of(text, is_word_character);
}

JsonField JsonField::operator[](const std::string& key) const {
  const std::string place = place_.empty() ? key : place_ + "." + key;
  expect_object();
  const auto found = value_.find(key);
  if (found == value_.end()) throw FieldError("there is no " + place);
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

std::string JsonField::identifier() const {
  if (!is_identifier(text())) fail("must be an identifier");
  return text();
}

int64_t JsonField::integer(int64_t least, int64_t most) const {
  if (!is_integer_between(value_, least, most)) fail(between("an integer", least, most));
  return value_.get<int64_t>();
}

double JsonField::number(double least, double most) const {
  if (!is_number_between(value_, least, most)) fail(between("a number", least, most));
  return value_.get<double>();
}

std::vector<JsonField> JsonField::list(size_t most, const char* what) const {
  if (array().size() > most) fail("must be at most " + std::to_string(most) + " " + what);
  std::vector<JsonField> fields;
  for (size_t i = 0; i < array().size(); ++i) {
    fields.push_back(element(i));
  }
  return fields;
}

std::vector<int64_t> JsonField::integers(int64_t least, int64_t most) const {
  std::vector<int64_t> values;
  for (const Json& value : array()) {
    if (!is_integer_between(value, least, most))
      element(values.size()).fail(between("an integer", least, most));
    values.push_back(value.get<int64_t>());
  }
  return values;
}

std::vector<double> JsonField::numbers(double least, double most) const {
  std::vector<double> values;
  for (const Json& value : array()) {
    if (!is_number_between(value, least, most)) element(values.size()).fail(between("a number", least, most));
    values.push_back(value.get<double>());
  }
  return values;
}

void JsonField::fail(const std::string& rule) const {
  throw FieldError((place_.empty() ? "the document" : place_) + " " + rule + ", got " + excerpt(value_));
}

const Json& JsonField::array() const {
  if (!value_.is_array()) fail("must be a list");
  return value_;
}

JsonField JsonField::element(size_t index) const {
  return {value_[index], place_ + "[" + std::to_string(index) + "]"};
}

}  // namespace lensbox
