#include "op_schema.h"

#include <algorithm>

#include "identifier.h"

namespace lensbox {
namespace {

constexpr size_t kMostCharacters = 4096;
constexpr int kMaxDepth = 16;

bool is_op_name(std::string_view name) {
  const size_t colons = name.find("::");
  return colons != std::string_view::npos && is_identifier(name.substr(0, colons)) &&
         is_identifier(name.substr(colons + 2));
}

bool is_overload(std::string_view dot_and_name) {
  return dot_and_name.empty() ||
         (dot_and_name.size() > 1 && std::ranges::all_of(dot_and_name.substr(1), continues_identifier));
}

bool is_printable(char c) {
  return c >= ' ' && c <= '~';
}

bool has_form(std::string_view schema) {
  if (!std::ranges::all_of(schema, is_printable)) return false;
  const size_t arguments = schema.find('(');
  const size_t result = schema.rfind(") -> ");
  if (arguments == std::string_view::npos || result == std::string_view::npos || result < arguments)
    return false;
  const std::string_view name = op_name(schema);
  return is_op_name(name) && is_overload(schema.substr(name.size(), arguments - name.size())) &&
         result + 5 < schema.size();
}

bool is_nested_too_deeply(std::string_view schema) {
  int depth = 0;
  for (const char c : schema) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth > kMaxDepth) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> op_schema_fault(std::string_view schema) {
  if (schema.size() > kMostCharacters) {
    return "must be at most " + std::to_string(kMostCharacters) + " characters";
  }
  if (is_nested_too_deeply(schema))
    return "must have brackets at most " + std::to_string(kMaxDepth) + " deep";
  if (!has_form(schema)) return "must be an op schema of the form ns::name(...) -> ...";
  return std::nullopt;
}

std::string_view op_name(std::string_view schema) {
  return schema.substr(0, schema.find_first_of(".("));
}

}  // namespace lensbox
