// Calls of ops through the dispatcher.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace lensbox {

using at::Tensor;

// Return the op `name` with the C++ signature Function. Keep the result in a static: the look-up is slow.
template <typename Function>
auto find_op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Function>();
}

}  // namespace lensbox
