#pragma once

#include <lensbox/api.h>
#include <lensbox/error.h>

#include <nlohmann/json.hpp>
#include <string_view>

namespace lensbox {

// The text is not JSON, or not of the strict kind; the message says why and where.
struct LENSBOX_API JsonError : InputError {
  using InputError::InputError;
};

// Parses JSON that only has one meaning: UTF-8 without byte order mark, no object with two equal keys, every
// number within the range of a double. Arrays and objects lie within each other at most `max_depth` deep, and
// an object has at most 1,000 keys, so that neither the stack nor the time is at the mercy of the text.
// Throws JsonError.
LENSBOX_API nlohmann::ordered_json parse_strict_json(std::string_view text, int max_depth);

}  // namespace lensbox
