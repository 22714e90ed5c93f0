#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

// Calls `function`, which must throw an Error whose message has all these parts.
template <class Error, class Function>
void expect_error(Function function, std::initializer_list<const char*> parts) {
  try {
    function();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    for (const char* part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
    }
  }
}
