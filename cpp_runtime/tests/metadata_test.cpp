#include "file/metadata.h"

#include "file/json.h"
#include "helpers.h"

namespace {

using Json = nlohmann::ordered_json;

// The table of documents that Python's reader refuses and accepts too (tests/runtime/file/test_metadata.py).
const Json& cases() {
  static const Json document = [] {
    std::ifstream stream(LENSBOX_METADATA_CASES);
    return Json::parse(stream);
  }();
  return document;
}

// Return the good document with the change of a case: [place, new value if any, ...].
std::string changed(const Json& change, bool has_value = true) {
  Json document = cases()["good"];
  const Json::json_pointer place(change[0].get<std::string>());
  if (has_value) {
    document[place] = change[1];
  } else {
    document[place.parent_pointer()].erase(place.back());
  }
  return document.dump();
}

std::string with(const char* place, const Json& value) {
  return changed(Json::array({place, value}));
}

lensbox::Metadata parse(const std::string& text) {
  return lensbox::parse_metadata(text, "model.pt");
}

void expect_refused(const std::string& text, std::initializer_list<const char*> parts) {
  expect_error<lensbox::ArtifactError>([&] { parse(text); }, parts);
}

TEST(ParseMetadata, ReadsTheFields) {
  const auto metadata = parse(cases()["good"].dump());
  EXPECT_EQ(metadata.torch_version, "2.13.0");
  EXPECT_EQ(metadata.ops, std::vector<std::string>{"a::b() -> ()"});
  EXPECT_EQ(metadata.methods, std::vector<std::string>{"detect"});
  EXPECT_EQ(metadata.score_threshold, 0.5);
  EXPECT_EQ(metadata.iou_threshold, 1.0);
  const auto& [canvas, orientation, jpeg_oversampling] = metadata.reading;
  EXPECT_EQ(std::tuple(canvas.height, canvas.width, canvas.channels, canvas.fill), std::tuple(24, 32, 3, 7));
  EXPECT_EQ(canvas.fit + canvas.filter + canvas.order, "cropbicubicbgr");
  EXPECT_EQ(canvas.mean, (std::vector<double>{0.5, 0, -1}));
  EXPECT_EQ(canvas.std, (std::vector<double>{1, 0.25, 2}));
  EXPECT_EQ(orientation, lensbox::Orientation::kStored);
  EXPECT_EQ(jpeg_oversampling, 3);
  EXPECT_NE(metadata.json.find(R"("more":{"of":"this"})"), std::string::npos);
}

TEST(ParseMetadata, RefusesInvalidFieldsAndNamesThem) {
  for (const Json& change : cases()["refused"]) {
    SCOPED_TRACE(change.dump().substr(0, 200));
    const std::string name = change.back().get<std::string>();
    expect_refused(changed(change, change.size() == 3), {"model.pt", name.c_str()});
  }
}

TEST(ParseMetadata, ReadsAllowedFields) {
  for (const Json& change : cases()["allowed"]) {
    EXPECT_NO_THROW(parse(changed(change))) << change.dump();
  }
}

TEST(ParseMetadata, BoundsWhatParsersAndPatternsGoThrough) {
  expect_refused(with("/ops/0", "a::b" + std::string(200'000, '(')), {"ops[0] must", "at most 16 deep"});
  expect_refused(with("/methods/0", std::string(200'000, 'a')), {"methods[0] must match the pattern"});
  expect_refused(with("/canvas/height", 0),
                 {"unusable lensbox.json", "canvas.height must be an integer from 1 to 16384, got 0"});
  expect_refused(with("/ops", Json(1001, "a::b() -> ()")), {"at most 1000 ops"});
}

void expect_bad_json(const std::string& text, std::initializer_list<const char*> parts) {
  expect_error<lensbox::JsonError>([&] { lensbox::parse_strict_json(text, 64); }, parts);
}

std::string nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(StrictJson, BoundsTheDepth) {
  EXPECT_NO_THROW(lensbox::parse_strict_json(nested(64), 64));
  expect_bad_json(nested(65), {"nested too deeply", "64"});
  expect_bad_json(nested(200'000), {"nested too deeply"});
  expect_bad_json(std::string(200'000, '['), {"nested too deeply"});
}

TEST(StrictJson, BoundsTheKeysOfAnObject) {
  std::string text = "{\"k\": 0";
  for (int i = 0; i < 1000; ++i) {
    text += ", \"" + std::to_string(i) + "\": 0";
  }
  expect_bad_json(text + "}", {"1000 keys"});
}

TEST(StrictJson, RefusesInvalidJson) {
  for (const char* text : {"", "{", "[1,]", "NaN", "[Infinity]", "[-Infinity]", "1e999", "01", "'a'", "{} {}",
                           "\xEF\xBB\xBF{}", "\"\xff\"", "\"\\ud800\"", "// x\n1", R"({"a": 1, "a": 2})"}) {
    EXPECT_THROW(lensbox::parse_strict_json(text, 64), lensbox::JsonError) << text;
  }
}

}  // namespace
