#include <lensbox/torch/strict_json.h>

#include <set>
#include <string>
#include <vector>

namespace lensbox {
namespace {

using Json = nlohmann::ordered_json;

// Looking up a key in an ordered_json takes a time that grows with the number of keys.
constexpr size_t kMostKeys = 1000;

// Refuses what the parser itself would accept. It sees the events of the text without building anything.
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
  // To the parser it would be the end of the text.
  if (text.find('\0') != std::string_view::npos) throw JsonError("it has a NUL character");
  Inspector inspector(max_depth);
  Json::sax_parse(text, &inspector);
  return Json::parse(text);
}

}  // namespace lensbox
