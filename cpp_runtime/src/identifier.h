#pragma once

#include <algorithm>
#include <string_view>

namespace lensbox {

// Independent of the locale, unlike isalpha.
inline bool begins_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

inline bool continues_identifier(char c) {
  return begins_identifier(c) || (c >= '0' && c <= '9');
}

inline bool is_identifier(std::string_view text) {
  return !text.empty() && begins_identifier(text[0]) && std::ranges::all_of(text, continues_identifier);
}

}  // namespace lensbox
