#include "file/metadata.h"

#include <tuple>

#include "helpers.h"

namespace {

constexpr const char* kGood = R"JSON({
  "format_version": 2, "name": "x", "lensbox_version": "0.1.0", "torch_version": "2.13.0",
  "weights_sha256": "00", "input": {}, "output": {},
  "canvas": {"height": 24, "width": 32, "channels": 3, "fill": 7},
  "reading": {"orientation": "stored", "jpeg_oversampling": 3},
  "ops": ["a::b() -> ()"], "methods": ["detect"],
  "defaults": {"score_threshold": 0.5, "iou_threshold": 1},
  "self_test": {
    "image": {"shape": [1, 1, 2], "pixels": [0, 255]}, "score_threshold": 0.25, "iou_threshold": 0.75,
    "expected": {"boxes": [[0, 1, 2, 3.5]], "scores": [0.5]},
    "loss": {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 2, 2]], "expected": 0.125},
    "tolerance": {"cpu": {"boxes": 0.01, "scores": 0.001, "loss": 1e-5},
                  "cuda": {"boxes": 0.5, "scores": 0.02, "loss": 0}}},
  "more": {"of": "this"}})JSON";

lensbox::Metadata parse(const std::string& text) {
  return lensbox::parse_metadata(text, "model.pt");
}

void expect_refused(const std::string& text, std::initializer_list<const char*> parts) {
  expect_error<lensbox::ArtifactError>([&] { parse(text); }, parts);
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kGood;
  return text.replace(text.find(from), from.size(), to);
}

TEST(ParseMetadata, ReadsTheFields) {
  const auto metadata = parse(kGood);
  EXPECT_EQ(metadata.torch_version, "2.13.0");
  EXPECT_EQ(metadata.ops, std::vector<std::string>{"a::b() -> ()"});
  EXPECT_EQ(metadata.methods, std::vector<std::string>{"detect"});
  EXPECT_EQ(metadata.score_threshold, 0.5);
  EXPECT_EQ(metadata.iou_threshold, 1.0);
  EXPECT_EQ(metadata.format_version, 2);
  EXPECT_EQ(metadata.reading.canvas.height, 24);
  EXPECT_EQ(metadata.reading.canvas.width, 32);
  EXPECT_EQ(metadata.reading.canvas.channels, 3);
  EXPECT_EQ(metadata.reading.canvas.fill, 7);
  EXPECT_EQ(metadata.reading.orientation, lensbox::Orientation::kStored);
  EXPECT_EQ(metadata.reading.jpeg_oversampling, 3);
  EXPECT_NE(metadata.json.find(R"("more":{"of":"this"})"), std::string::npos);
}

TEST(ParseMetadata, RefusesInvalidFields) {
  const std::tuple<const char*, const char*, const char*> changes[] = {
      {"\"canvas\"", "\"screen\"", "there is no canvas"},
      {"\"reading\"", "\"writing\"", "there is no reading"},
      {"\"height\": 24", "\"height\": 0", "canvas.height must be an integer from 1 to 16384, got 0"},
      {"\"width\": 32", "\"width\": 16385", "canvas.width must be an integer from 1 to 16384, got 16385"},
      {"\"width\": 32", "\"width\": 32.0", "canvas.width must be an integer"},
      {"\"channels\": 3", "\"channels\": 2", "canvas.channels must be 1 or 3, got 2"},
      {"\"channels\": 3", "\"channels\": 4", "canvas.channels must be"},
      {"\"fill\": 7", "\"fill\": 256", "canvas.fill must be an integer from 0 to 255, got 256"},
      {"\"fill\": 7", "\"full\": 7", "there is no canvas.fill"},
      {"\"stored\"", "\"EXIF\"", "reading.orientation must match the pattern exif|stored, got \"EXIF\""},
      {"\"stored\"", "6", "reading.orientation must be a string, got 6"},
      {"\"jpeg_oversampling\": 3", "\"jpeg_oversampling\": 1001",
       "reading.jpeg_oversampling must be an integer from 0 to 1000, got 1001"},
      {"\"jpeg_oversampling\": 3", "\"jpeg_oversampling\": true", "reading.jpeg_oversampling must be"},
      {"\"ops\"", "\"opts\"", "there is no ops"},
      {"\"input\": {}", "\"input\": []", "input must be an object, got []"},
      {"\"2.13.0\"", "213", "torch_version must be a string, got 213"},
      {"\"iou_threshold\": 1", "\"iou_threshold\": true",
       "iou_threshold must be a number from 0 to 1, got true"},
      {"[\"detect\"]", "3", "methods must be a list, got 3"},
      {"[\"detect\"]", "[\"de-tect\"]", "methods[0] must match the pattern [A-Za-z_]"},
  };
  for (const auto& [from, to, message] : changes) {
    expect_refused(changed(from, to), {"model.pt", "unusable lensbox.json", message});
  }
}

TEST(ParseMetadata, RefusesAFormatVersionThatIsNoInteger) {
  for (const char* version : {"0", "-1", "1.0", "1e300", "true", "\"1\"", "null", "18446744073709551616"}) {
    expect_refused(changed("\"format_version\": 2", std::string("\"format_version\": ") + version),
                   {"format_version must be an integer"});
  }
  expect_refused(changed("\"format_version\": 2", "\"format_version\": 4294967297"),
                 {"format version 4294967297"});
}

TEST(ParseMetadata, BoundsTheOps) {
  expect_refused(changed("a::b()", "a::b" + std::string(200'000, '(')),
                 {"ops[0] must", "brackets at most 16 deep"});
  expect_refused(changed("[\"detect\"]", "[\"" + std::string(200'000, 'a') + "\"]"),
                 {"methods[0] must match the pattern"});
  std::string many = "a::b() -> ()";
  for (int i = 0; i < 1000; ++i) {
    many += "\", \"a::b() -> ()";
  }
  expect_refused(changed("a::b() -> ()", many), {"at most 1000 ops"});
}

TEST(ParseMetadata, RefusesADamagedSelfTest) {
  const std::pair<const char*, const char*> changes[] = {
      {"\"shape\": [1, 1, 2]", "\"shape\": [1, 1, -2]"},
      {"\"shape\": [1, 1, 2]", "\"shape\": [2, 1, 1]"},
      {"\"shape\": [1, 1, 2]", "\"shape\": [1, 2]"},
      {"\"shape\": [1, 1, 2]", "\"shape\": [1, 1, 1]"},
      {"\"shape\": [1, 1, 2]", "\"shape\": [4, 1048576, 1048576]"},
      {"\"shape\": [1, 1, 2]", "\"shape\": [1, 9223372036854775807, 2]"},
      {"\"shape\": [1, 1, 2]", "\"shape\": [1, 1, 18446744073709551615]"},
      {"[0, 255]", "[0, 256]"},
      {"[0, 255]", "[0, 255.0]"},
      {"[0, 255]", "[0, true]"},
      {"[[0, 1, 2, 3.5]]", "[[0, 1, 2]]"},
      {"[[0, 1, 2, 3.5]]", "[[0, 1, 2, 1e39]]"},
      {"\"scores\": [0.5]", "\"scores\": []"},
      {"\"scores\": [0.5]", "\"scores\": [1.5]"},
      {"[[0, 0, 2, 2]]", "[[0, 0, 2, 2], [0, 0, 1, 1]]"},
      {"\"expected\": 0.125", "\"expected\": null"},
      {"\"cuda\"", "\"tpu\""},
  };
  for (const auto& [from, to] : changes) {
    expect_refused(changed(from, to), {"model.pt", "unusable lensbox.json", "self_test"});
  }
}

}  // namespace
