#pragma once

#include <exception>
#include <string>

namespace lensbox {

// The message of an error thrown by torch without the C++ stack trace that it carries, on lines indented by
// two spaces.
std::string torch_message(const std::exception& error);

// "torch 2.13.0": the torch whose headers this library was built with.
std::string torch_description();

}  // namespace lensbox
