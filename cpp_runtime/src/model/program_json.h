#pragma once

// The JSON of torch.export's files, in torch/_export/serde/schema.py, read without trust.

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lensbox {

using GraphJson = nlohmann::json;

// A feature of the graph that this library does not have, or a fault of the file.
struct GraphError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Read JSON. Throws for more than 100 levels.
GraphJson parse_json(std::string_view text);

// Throw GraphError, with the rule and the JSON, unless the condition holds.
void require(bool condition, const std::string& rule, const GraphJson& got);

// Return a number. Throw GraphError for an integer beyond 64 bits, and for what is none.
int64_t as_integer(const GraphJson& value);
double as_double(const GraphJson& value);

// Return name and value of the only entry of an object that is not null, which is how a union is written.
std::pair<std::string, const GraphJson&> entry_of(const GraphJson& object);

at::ScalarType dtype_of(const GraphJson& value);
at::Layout layout_of(const GraphJson& value);
at::MemoryFormat memory_format_of(const GraphJson& value);

}  // namespace lensbox
