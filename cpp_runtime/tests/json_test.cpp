#include "file/json.h"

#include "helpers.h"

namespace {

using lensbox::parse_strict_json;

void expect_refused(const std::string& text, std::initializer_list<const char*> parts) {
  expect_error<lensbox::JsonError>([&] { parse_strict_json(text, 64); }, parts);
}

std::string nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(StrictJson, KeepsTheOrderOfKeys) {
  EXPECT_EQ(parse_strict_json(R"({"b": [1, "x"], "a": null})", 64).dump(), R"({"b":[1,"x"],"a":null})");
}

TEST(StrictJson, BoundsTheDepth) {
  EXPECT_NO_THROW(parse_strict_json(nested(64), 64));
  expect_refused(nested(65), {"nested too deeply", "64"});
  expect_refused(nested(200'000), {"nested too deeply"});
  expect_refused(std::string(200'000, '['), {"nested too deeply"});
}

TEST(StrictJson, BoundsTheKeysOfAnObject) {
  std::string text = "{\"k\": 0";
  for (int i = 0; i < 1000; ++i) {
    text += ", \"" + std::to_string(i) + "\": 0";
  }
  expect_refused(text + "}", {"1000 keys"});
}

TEST(StrictJson, RefusesInvalidJson) {
  for (const char* text : {"", "{", "[1,]", "NaN", "[Infinity]", "[-Infinity]", "1e999", "01", "'a'", "{} {}",
                           "\xEF\xBB\xBF{}", "\"\xff\"", "\"\\ud800\"", "// x\n1", R"({"a": 1, "a": 2})"}) {
    EXPECT_THROW(parse_strict_json(text, 64), lensbox::JsonError) << text;
  }
}

}  // namespace
