#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lensbox {

// Why a text must not be given to torch's parser of op schemas, which calls itself for each bracket and would
// overflow the stack: nothing if it has the form "ns::name(...) -> ..." with brackets at most 16 deep, and at
// most 4,096 characters.
std::optional<std::string> op_schema_fault(std::string_view schema);

// "lensbox::giou" of "lensbox::giou(Tensor boxes1, ...) -> Tensor", without the name of an overload.
std::string_view op_name(std::string_view schema);

}  // namespace lensbox
