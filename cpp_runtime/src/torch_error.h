#pragma once

#include <exception>
#include <string>

namespace lensbox {

// The message of an error thrown by torch without the C++ stack trace that it carries, on lines indented by
// two spaces.
std::string torch_message(const std::exception& error);

}  // namespace lensbox
