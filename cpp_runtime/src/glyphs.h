#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lensbox {

inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 7;

// One number a row; the highest of five bits is the leftmost pixel.
using Glyph = std::array<uint8_t, kGlyphHeight>;

// How the characters of a text in UTF-8 look: ASCII as it does, any other character as an empty frame.
std::vector<Glyph> glyphs_of(std::string_view text);

}  // namespace lensbox
