#pragma once

#include <nlohmann/json.hpp>

// Writes the document on a line of its own to stdout, as write_stdout does.
void print_line(const nlohmann::ordered_json& document);
