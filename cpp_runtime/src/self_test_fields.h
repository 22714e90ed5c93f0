#pragma once

#include <lensbox/torch/metadata.h>

#include "json_field.h"

namespace lensbox {

// Reads the self_test of lensbox.json and checks all of it. Throws FieldError.
SelfTest read_self_test(const JsonField& field);

}  // namespace lensbox
