#pragma once

#include <lensbox/detection.h>

#include <string>
#include <vector>

#include "json_field.h"

namespace lensbox {

// What lensbox.json says of a detector's outputs; both entries are optional. They throw FieldError.
std::vector<std::string> read_classes(const JsonField& root);
std::vector<Extra> read_extras(const JsonField& root);

// How many numbers an extra has for each detection.
int64_t size_of(const Extra& extra);

}  // namespace lensbox
