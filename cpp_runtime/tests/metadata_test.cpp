#include "file/metadata.h"

#include <lensbox/detector.h>

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

TEST(ParseMetadata, FieldsAreStrict) {
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
      {"\"iou_threshold\": 1", "\"iou_threshold\": 1.5",
       "iou_threshold must be a number from 0 to 1, got 1.5"},
      {"\"iou_threshold\": 1", "\"iou_threshold\": true",
       "iou_threshold must be a number from 0 to 1, got true"},
      {"[\"detect\"]", "3", "methods must be a list, got 3"},
      {"[\"detect\"]", "[\"de-tect\"]", "methods[0] must match the pattern [A-Za-z_]"},
      {"\"more\"", "\"ops\": [], \"more\"", "\"ops\" twice"},
  };
  for (const auto& [from, to, message] : changes) {
    expect_refused(changed(from, to), {"model.pt", "lensbox.json is damaged", message});
  }
}

TEST(ParseMetadata, ReadsTheSelfTest) {
  const auto test = parse(kGood).self_test;
  EXPECT_EQ(test.image_shape, (std::array<int64_t, 3>{1, 1, 2}));
  EXPECT_EQ(test.pixels, (std::vector<uint8_t>{0, 255}));
  EXPECT_EQ(test.score_threshold, 0.25);
  EXPECT_EQ(test.iou_threshold, 0.75);
  ASSERT_EQ(test.detections.size(), 1);
  EXPECT_EQ(test.detections[0].box, (lensbox::Box{0, 1, 2, 3.5}));
  EXPECT_EQ(test.detections[0].score, 0.5F);
  EXPECT_EQ(test.loss_predictions, (std::vector<lensbox::Box>{{0, 0, 1, 1}}));
  EXPECT_EQ(test.loss_targets, (std::vector<lensbox::Box>{{0, 0, 2, 2}}));
  EXPECT_EQ(test.loss, 0.125);
  EXPECT_EQ(test.cpu.boxes, 0.01);
  EXPECT_EQ(test.cuda.scores, 0.02);
}

// Two classes, points, a number, and all else that is optional.
std::string with_names() {
  std::string text = changed("\"ops\"", R"JSON("classes": ["cat", "h\u00e9risson"],
    "extras": {"eyes": {"shape": [2, 2], "kind": "points"}, "age": {"shape": [], "kind": "values"}},
    "precision": {"dtype": "tf32", "device": "cuda", "pictures": 12, "detections": 30,
                  "median_box_change": 0.01, "max_box_change": 1.5, "max_score_change": 0.004},
    "libraries": [{"name": "libmy-ops.so.1", "sha256":
                   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                   "torch_version": "2.13.0+cpu", "platform": "linux-x86_64"}],
    "ops")JSON");
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("\"scores\": [0.5]", R"("scores": [0.5], "labels": [1],
    "extras": {"eyes": [[1, 2, 3, 4.5]], "age": [[16777217]]})");
  replace("\"loss\": 1e-5}", R"("loss": 1e-5, "extras": {"eyes": 0.25, "age": 0}})");
  replace("\"loss\": 0}", R"("loss": 0, "extras": {"eyes": 0.5, "age": 1}})");
  return text;
}

TEST(ParseMetadata, ReadsClassesAndExtras) {
  const auto metadata = parse(with_names());
  EXPECT_EQ(metadata.classes, (std::vector<std::string>{"cat", "h\u00e9risson"}));
  ASSERT_EQ(metadata.extras.size(), 2);
  EXPECT_EQ(metadata.extras[0].name, "eyes");
  EXPECT_EQ(metadata.extras[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(metadata.extras[0].kind, lensbox::ExtraKind::kPoints);
  EXPECT_EQ(metadata.extras[1].name, "age");
  EXPECT_TRUE(metadata.extras[1].shape.empty());
  EXPECT_EQ(metadata.extras[1].kind, lensbox::ExtraKind::kValues);

  const auto& test = metadata.self_test;
  EXPECT_EQ(test.detections[0].label, 1);
  // The second number is none of float32's.
  EXPECT_EQ(test.extras, (std::vector<std::vector<double>>{{1, 2, 3, 4.5}, {16777217}}));
  EXPECT_EQ(test.cpu.extras, (std::vector<double>{0.25, 0}));
  EXPECT_EQ(test.cuda.extras, (std::vector<double>{0.5, 1}));
}

TEST(ParseMetadata, ReadsPrecisionAndLibraries) {
  const auto metadata = parse(with_names());
  ASSERT_TRUE(metadata.precision);
  EXPECT_EQ(metadata.precision->dtype, lensbox::Precision::Dtype::kTf32);
  EXPECT_EQ(metadata.precision->device, "cuda");
  EXPECT_EQ(metadata.precision->pictures, 12);
  EXPECT_EQ(metadata.precision->detections, 30);
  EXPECT_EQ(metadata.precision->median_box_change, 0.01);
  EXPECT_EQ(metadata.precision->max_box_change, 1.5);
  EXPECT_EQ(metadata.precision->max_score_change, 0.004);
  ASSERT_EQ(metadata.libraries.size(), 1);
  EXPECT_EQ(metadata.libraries[0].name, "libmy-ops.so.1");
  EXPECT_EQ(metadata.libraries[0].sha256.substr(60), "cdef");
  EXPECT_EQ(metadata.libraries[0].torch_version, "2.13.0+cpu");
  EXPECT_EQ(metadata.libraries[0].platform, "linux-x86_64");
}

TEST(ParseMetadata, WhatIsOptionalMayBeAbsent) {
  const auto metadata = parse(kGood);
  EXPECT_TRUE(metadata.classes.empty());
  EXPECT_TRUE(metadata.extras.empty());
  EXPECT_FALSE(metadata.precision);
  EXPECT_TRUE(metadata.libraries.empty());
  EXPECT_TRUE(metadata.self_test.extras.empty());
}

TEST(ParseMetadata, RefusesAnotherFormat) {
  for (const char* version : {"1", "3"}) {
    expect_refused(changed("\"format_version\": 2", std::string("\"format_version\": ") + version),
                   {"model.pt", "format version ", version, "reads version 2 only", "0.1.0"});
  }
  expect_refused("{\"format_version\": 3}", {"format version 3", "version not given"});
}

TEST(ParseMetadata, TheFormatVersionIsAnInteger) {
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
      {"[[0, 1, 2, 3.5]]", "[]"},
      {"[[0, 1, 2, 3.5]]", "[[0, 1, 2]]"},
      {"[[0, 1, 2, 3.5]]", "[[0, 1, 2, 1e39]]"},
      {"\"scores\": [0.5]", "\"scores\": []"},
      {"\"scores\": [0.5]", "\"scores\": [1.5]"},
      {"[[0, 0, 2, 2]]", "[[0, 0, 2, 2], [0, 0, 1, 1]]"},
      {"\"expected\": 0.125", "\"expected\": null"},
      {"\"boxes\": 0.5", "\"boxes\": -0.5"},
      {"\"cuda\"", "\"tpu\""},
  };
  for (const auto& [from, to] : changes) {
    expect_refused(changed(from, to), {"model.pt", "self-test is damaged"});
  }
  // Both empty would pass any self-test.
  std::string empty = changed("[[0, 1, 2, 3.5]]", "[]");
  empty.replace(empty.find("[0.5]"), 5, "[]");
  expect_refused(empty, {"expected.boxes must be at least one box"});
}

using ReadMetadata = TemporaryFolder;

TEST_F(ReadMetadata, RefusesWhatIsNoArchive) {
  const auto read = [](const std::filesystem::path& path) {
    return [path] { lensbox::read_metadata(path); };
  };
  expect_error<lensbox::ArtifactError>(read(folder_ / "no.pt"), {"no.pt", "no such file"});
  expect_error<lensbox::ArtifactError>(read(folder_), {"not a file"});
  expect_error<lensbox::ArtifactError>(
      read(write("x.pt", "text")),
      {"x.pt", "not an artifact, which begins as a zip archive or an ONNX model"});
  expect_error<lensbox::ArtifactError>(read(write("e.pt", "")), {"e.pt", "not an artifact: it is empty"});
}

}  // namespace
