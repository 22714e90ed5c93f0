#include "model/program_json.h"

#include <cmath>
#include <map>

namespace lensbox {
namespace {

constexpr int kDeepest = 100;  // levels of JSON

// Return c10's number of an enumeration in the schema.
template <class Type>
Type from_schema(const std::map<int64_t, Type>& known, const char* what, const GraphJson& value) {
  const auto found = known.find(as_integer(value));
  require(found != known.end(), std::string("a ") + what + " must be known to this library", value);
  return found->second;
}

}  // namespace

GraphJson parse_json(std::string_view text) {
  const auto is_flat = [](int depth, GraphJson::parse_event_t /*event*/, GraphJson& /*parsed*/) {
    if (depth > kDeepest) throw GraphError("its JSON is nested too deeply");
    return true;
  };
  return GraphJson::parse(text, is_flat);
}

void require(bool condition, const std::string& rule, const GraphJson& got) {
  if (!condition) throw GraphError(rule + ", got " + got.dump().substr(0, 80));
}

int64_t as_integer(const GraphJson& value) {
  require(value.is_number_integer() &&
              (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX}),
          "a number must be an integer of 64 bits", value);
  return value.get<int64_t>();
}

double as_double(const GraphJson& value) {
  require(value.is_number() || value.is_string(), "a number must be a float", value);
  if (!value.is_string()) return value.get<double>();
  static const std::map<std::string, double> kOthers{
      {"Infinity", INFINITY}, {"-Infinity", -INFINITY}, {"NaN", NAN}};
  const auto found = kOthers.find(value.get<std::string>());
  require(found != kOthers.end(), "a number that is a text must be Infinity, -Infinity or NaN", value);
  return found->second;
}

std::pair<std::string, const GraphJson&> entry_of(const GraphJson& object) {
  for (const auto& [key, value] : object.items()) {
    if (object.size() == 1 || !value.is_null()) return {key, value};
  }
  throw GraphError("a value must have a kind");
}

at::ScalarType dtype_of(const GraphJson& value) {
  static const std::map<int64_t, at::ScalarType> kTypes{
      {1, at::kByte},        {2, at::kChar},           {3, at::kShort},          {4, at::kInt},
      {5, at::kLong},        {6, at::kHalf},           {7, at::kFloat},          {8, at::kDouble},
      {9, at::kComplexHalf}, {10, at::kComplexFloat},  {11, at::kComplexDouble}, {12, at::kBool},
      {13, at::kBFloat16},   {29, at::kFloat8_e4m3fn}, {30, at::kFloat8_e5m2}};
  return from_schema(kTypes, "dtype", value);
}

at::Layout layout_of(const GraphJson& value) {
  return from_schema<at::Layout>({{7, at::kStrided}}, "layout", value);
}

at::MemoryFormat memory_format_of(const GraphJson& value) {
  using enum at::MemoryFormat;
  return from_schema<at::MemoryFormat>(
      {{1, Contiguous}, {2, ChannelsLast}, {3, ChannelsLast3d}, {4, Preserve}}, "memory format", value);
}

}  // namespace lensbox
