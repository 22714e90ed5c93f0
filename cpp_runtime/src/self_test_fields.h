#pragma once

#include <lensbox/torch/metadata.h>

#include "json_field.h"

namespace lensbox {

// Reads the self_test of lensbox.json, of a detector with so many classes and these extras, and checks all of
// it. Throws FieldError.
SelfTest read_self_test(const JsonField& field, size_t classes, const std::vector<Extra>& extras);

}  // namespace lensbox
