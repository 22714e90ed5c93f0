#pragma once

// Before each function and class that the shared library gives to others: all else stays hidden in it.
#define LENSBOX_API __attribute__((visibility("default")))
