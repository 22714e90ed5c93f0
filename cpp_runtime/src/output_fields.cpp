#include "output_fields.h"

#include <algorithm>
#include <set>

#include "identifier.h"

namespace lensbox {
namespace {

constexpr size_t kMostClasses = 10'000;
constexpr size_t kMostCharacters = 200;
constexpr size_t kMostExtras = 100;
constexpr size_t kMostDimensions = 8;
constexpr int64_t kMostNumbers = 1 << 16;

// Of UTF-8: each but the first byte of a character begins with the bits 10.
size_t characters(const std::string& text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; });
}

bool is_taken(const std::string& name) {
  return name == "boxes" || name == "scores" || name == "counts" || name == "labels";
}

std::vector<int64_t> read_shape(const JsonField& field) {
  const std::vector<int64_t> shape = field.integers(1, kMostNumbers);
  if (shape.size() > kMostDimensions) {
    field.fail("must be at most " + std::to_string(kMostDimensions) + " sizes");
  }
  int64_t product = 1;
  for (const int64_t size : shape) {
    product *= size;  // does not overflow: both are at most 2^16
    if (product > kMostNumbers) {
      field.fail("must be that of at most " + std::to_string(kMostNumbers) + " numbers");
    }
  }
  return shape;
}

Extra read_extra(const std::string& name, const JsonField& field) {
  if (!is_identifier(name) || is_taken(name)) {
    field.fail("must have a name that is an identifier other than boxes, scores, counts and labels");
  }
  const std::string kind = field["kind"].text();
  if (kind != "points" && kind != "values") field["kind"].fail("must be \"points\" or \"values\"");
  Extra extra{.name = name,
              .shape = read_shape(field["shape"]),
              .kind = kind == "points" ? ExtraKind::kPoints : ExtraKind::kValues};
  if (extra.kind == ExtraKind::kPoints && (extra.shape.empty() || extra.shape.back() != 2)) {
    field["shape"].fail("must end with 2, as points do");
  }
  return extra;
}

}  // namespace

std::vector<std::string> read_classes(const JsonField& root) {
  if (!root.has("classes")) return {};
  std::vector<std::string> names;
  for (const JsonField& item : root["classes"].list(kMostClasses, "names")) {
    names.push_back(item.text());
    const size_t length = characters(names.back());
    if (length < 1 || length > kMostCharacters) {
      item.fail("must be a name of 1 to " + std::to_string(kMostCharacters) + " characters");
    }
  }
  if (std::set(names.begin(), names.end()).size() < names.size()) {
    root["classes"].fail("must be different names");
  }
  return names;
}

std::vector<Extra> read_extras(const JsonField& root) {
  if (!root.has("extras")) return {};
  const JsonField field = root["extras"];
  const std::vector<std::string> names = field.keys();
  if (names.size() > kMostExtras) {
    field.fail("must be at most " + std::to_string(kMostExtras) + " outputs");
  }
  std::vector<Extra> extras;
  for (const std::string& name : names) {
    extras.push_back(read_extra(name, field[name]));
  }
  return extras;
}

int64_t size_of(const Extra& extra) {
  int64_t product = 1;
  for (const int64_t size : extra.shape) {
    product *= size;
  }
  return product;
}

}  // namespace lensbox
