#pragma once

#if __cplusplus < 202002L
#error "Lensbox needs C++20: compile with -std=c++20, or link lensbox::runtime in CMake, which asks for it"
#endif

// Marks a function or class that the shared library exports. All other symbols are hidden.
#define LENSBOX_API __attribute__((visibility("default")))
