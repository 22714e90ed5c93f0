#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace lensbox {

inline bool is_utf8(std::string_view text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());  // JSON must be
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace lensbox
