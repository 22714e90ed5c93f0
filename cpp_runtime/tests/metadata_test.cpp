#include <lensbox/artifact.h>
#include <lensbox/error.h>
#include <lensbox/metadata.h>

#include "expect_error.h"
#include "temporary_folder.h"

namespace {

constexpr const char* kGood = R"JSON({
  "format_version": 1, "name": "x", "lensbox_version": "0.1.0", "torch_version": "2.13.0",
  "weights_sha256": "00", "input": {}, "output": {}, "ops": ["a::b() -> ()"], "methods": ["detect"],
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
  EXPECT_EQ(metadata.document["more"]["of"], "this");
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

TEST(ParseMetadata, RefusesANewerFormat) {
  expect_refused(changed("\"format_version\": 1", "\"format_version\": 2"),
                 {"model.pt", "format version 2", "up to 1", "0.1.0"});
  expect_refused("{\"format_version\": 2}", {"format version 2", "version not given"});
}

TEST(ParseMetadata, NamesAMissingField) {
  expect_refused(changed("\"ops\"", "\"opts\""), {"damaged", "ops"});
}

TEST(ParseMetadata, RefusesAFieldOfAnotherType) {
  expect_refused(changed("[\"detect\"]", "3"), {"damaged"});
  expect_refused(changed("\"input\": {}", "\"input\": []"), {"input must be an object, got []"});
  expect_refused(changed("\"2.13.0\"", "213"), {"torch_version must be a string, got 213"});
}

TEST(ParseMetadata, TheFormatVersionIsAnInteger) {
  for (const char* version : {"0", "-1", "1.0", "1e300", "true", "\"1\"", "null", "18446744073709551616"}) {
    expect_refused(changed("\"format_version\": 1", std::string("\"format_version\": ") + version),
                   {"format_version must be an integer"});
  }
  expect_refused(changed("\"format_version\": 1", "\"format_version\": 4294967297"),
                 {"format version 4294967297", "newer"});
}

TEST(ParseMetadata, RefusesOpsThatAreNoSchemas) {
  const auto with_op = [](const std::string& op) { return changed("a::b() -> ()", op); };
  for (const char* op :
       {"", "a", "a::b", "a::b()", "a::b() -> ", "::b() -> ()", "a::b.() -> ()", "a b::c() -> ()"}) {
    expect_refused(with_op(op), {"ops[0] must be an op schema"});
  }
  expect_refused(with_op("a::b(" + std::string(200'000, '(')), {"at most 4096 characters"});
  expect_refused(with_op("a::b(" + std::string(16, '(') + ") -> ()"), {"brackets at most 16 deep"});
  EXPECT_NO_THROW(parse(with_op("a::b.out(int[2] x, (str, (int, float))[] y=[]) -> (Tensor(a!), Tensor?)")));
  std::string many = "a::b() -> ()";
  for (int i = 0; i < 1000; ++i) {
    many += "\", \"a::b() -> ()";
  }
  expect_refused(with_op(many), {"at most 1000 ops"});
}

TEST(ParseMetadata, RefusesThresholdsAndMethodsThatAreNone) {
  expect_refused(changed("\"iou_threshold\": 1", "\"iou_threshold\": 1.5"), {"from 0 to 1, got 1.5"});
  expect_refused(changed("\"iou_threshold\": 1", "\"iou_threshold\": true"), {"from 0 to 1, got true"});
  expect_refused(changed("[\"detect\"]", "[\"de-tect\"]"), {"methods[0] must be an identifier"});
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

TEST(ParseMetadata, RefusesWhatHasTwoMeanings) {
  expect_refused(changed("\"more\"", "\"ops\": [], \"more\""), {"damaged", "\"ops\" twice"});
  expect_refused(changed("\"this\"", std::string(200'000, '[')), {"damaged", "nested too deeply"});
}

TEST(ParseMetadata, RefusesWhatIsNotJson) {
  expect_refused("{", {"model.pt", "damaged"});
}

using ReadMetadata = TemporaryFolder;

TEST_F(ReadMetadata, RefusesWhatIsNoArchive) {
  const auto read = [](const std::filesystem::path& path) {
    return [path] { lensbox::read_metadata(path); };
  };
  expect_error<lensbox::ArtifactError>(read(folder_ / "no.pt"), {"no.pt", "no such file"});
  expect_error<lensbox::ArtifactError>(read(folder_), {"not a file"});
  expect_error<lensbox::ArtifactError>(read(write("x.pt", "text")), {"x.pt", "not a TorchScript file"});
  expect_error<lensbox::ArtifactError>(read(write("e.pt", "")), {"e.pt", "not a TorchScript file"});
}

}  // namespace
