#include "boxes_json.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lensbox/error.h>

#include <cstdlib>
#include <limits>

#include "expect_error.h"

namespace {

using Json = nlohmann::ordered_json;

at::Tensor parse(const char* text) {
  return parse_boxes(Json::parse(text), "predictions");
}

void expect_no_boxes(const char* text, std::initializer_list<const char*> parts) {
  expect_error<lensbox::InputError>([&] { parse(text); }, parts);
}

std::vector<int64_t> shape_of(const char* text) {
  return parse(text).sizes().vec();
}

using Shape = std::vector<int64_t>;

TEST(ParseBoxes, NestedArrays) {
  const at::Tensor boxes = parse("[[1, 2.5, 3, 4], [5, 6, 7, -8e-3]]");
  EXPECT_TRUE(at::equal(boxes, at::tensor({1., 2.5, 3., 4., 5., 6., 7., -8e-3}).reshape({2, 4})));
  EXPECT_EQ(boxes.scalar_type(), at::kDouble);
}

TEST(ParseBoxes, ABatch) {
  const at::Tensor boxes = parse("[[[1, 2, 3, 4]], [[5, 6, 7, 8]]]");
  EXPECT_TRUE(at::equal(boxes, at::arange(1, 9, at::kDouble).reshape({2, 1, 4})));
}

TEST(ParseBoxes, AnObjectWithBoxes) {
  EXPECT_EQ(shape_of(R"({"boxes": [[1, 2, 3, 4]], "note": 1})"), Shape({1, 4}));
}

TEST(ParseBoxes, EmptyShapes) {
  EXPECT_EQ(shape_of("[]"), Shape({0, 4}));
  EXPECT_EQ(shape_of("[[], []]"), Shape({2, 0, 4}));
  EXPECT_EQ(shape_of(R"({"images": [{"detections": []}]})"), Shape({0, 4}));
}

TEST(ParseBoxes, TheOutputOfDetectForOneImage) {
  const at::Tensor boxes = parse(R"({"images": [{"file": "a", "detections": [
      {"box": [1, 2, 3, 4], "score": 0.5}, {"box": [5, 6, 7, 8], "score": 0.4}]}]})");
  EXPECT_TRUE(at::equal(boxes, at::arange(1, 9, at::kDouble).reshape({2, 4})));
}

TEST(ParseBoxes, TheOutputOfDetectForSeveralImagesIsPadded) {
  const at::Tensor boxes = parse(R"({"images": [
      {"detections": []}, {"detections": [{"box": [1, 2, 3, 4], "score": 0.5}]}]})");
  EXPECT_TRUE(at::equal(boxes, at::tensor({0., 0., 0., 0., 1., 2., 3., 4.}).reshape({2, 1, 4})));
}

TEST(ParseBoxes, RefusesWhatIsNoArray) {
  expect_no_boxes("7", {"predictions", "nested arrays", "7"});
}

TEST(ParseBoxes, RefusesAnObjectWithoutBoxes) {
  expect_no_boxes(R"({"box": []})", {"\"boxes\"", "\"images\""});
}

TEST(ParseBoxes, RefusesThreeNumbers) {
  expect_no_boxes("[[1, 2, 3, 4], [1, 2, 3]]", {"predictions[1]", "four numbers", "[1,2,3]"});
}

TEST(ParseBoxes, RefusesOneFlatBox) {
  expect_no_boxes("[1, 2, 3, 4]", {"predictions[0]", "four numbers", "got 1"});
}

TEST(ParseBoxes, RefusesTextAndBooleans) {
  expect_no_boxes(R"([[1, 2, 3, "4"]])", {"predictions[0][3]", "number", "\"4\""});
  expect_no_boxes("[[1, 2, true, 4]]", {"predictions[0][2]", "number", "true"});
}

TEST(ParseBoxes, RefusesARaggedBatch) {
  expect_no_boxes("[[[1, 2, 3, 4]], []]", {"predictions[1]", "same number of boxes (1", "[]"});
}

TEST(ParseBoxes, NamesTheElementOfABatch) {
  expect_no_boxes("[[[1, 2, 3, 4]], [[1, 2, 3, null]]]", {"predictions[1][0][3]", "null"});
}

TEST(ParseBoxes, RefusesAnImageThatFailed) {
  expect_no_boxes(R"({"images": [{"file": "a", "error": "no such file"}]})",
                  {"predictions.images[0]", "detections", "no such file"});
}

TEST(ParseBoxes, QuotesLongValuesInPart) {
  const std::string text = "\"" + std::string(10000, 'x') + "\"";
  try {
    parse(text.c_str());
    FAIL() << "nothing was thrown";
  } catch (const lensbox::InputError& error) {
    EXPECT_LT(std::string(error.what()).size(), 200U);
  }
}

TEST(ShortestDecimal, PrintsAsTheFloatDoesAndReadsBackTheSame) {
  EXPECT_EQ(Json(shortest_decimal(0.3F)).dump(), "0.3");
  for (const float value : {0.1F, 123.456F, 1.0F / 3, 255.99998F, std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(), -0.0F}) {
    const auto text = Json(shortest_decimal(value)).dump();
    EXPECT_EQ(std::strtof(text.c_str(), nullptr), value) << text;
  }
}

lensbox::Metadata with(const std::vector<std::string>& classes, const std::vector<lensbox::Extra>& extras) {
  lensbox::Metadata metadata{};
  metadata.classes = classes;
  metadata.extras = extras;
  return metadata;
}

TEST(ToJson, ListsDetectionsInOrder) {
  const auto json = to_json({{{1, 2, 3.25F, 4}, 0.9F}, {{5, 6, 7, 8}, 0.1F}}, with({}, {}));
  EXPECT_EQ(json.dump(), R"([{"box":[1.0,2.0,3.25,4.0],"score":0.9},{"box":[5.0,6.0,7.0,8.0],"score":0.1}])");
  EXPECT_EQ(to_json({}, with({}, {})).dump(), "[]");
}

TEST(ToJson, LabelsAreNamesAndExtrasHaveTheirShapes) {
  using lensbox::ExtraKind;
  const std::vector<lensbox::Extra> extras{{"eyes", {2, 2}, ExtraKind::kPoints},
                                           {"age", {}, ExtraKind::kValues},
                                           {"code", {1, 3}, ExtraKind::kValues}};
  const lensbox::Detection detection{{1, 2, 3, 4},
                                     0.5F,
                                     1,
                                     {std::vector<float>{0.1F, 2, -3, 4}, std::vector<int64_t>{INT64_MAX},
                                      std::vector<float>{0, std::numeric_limits<float>::quiet_NaN(), 1e30F}}};
  EXPECT_EQ(to_json({detection}, with({"cat", "h\u00e9risson"}, extras)).dump(),
            R"([{"box":[1.0,2.0,3.0,4.0],"score":0.5,"label":"hérisson","extras":{"eyes":[[0.1,2.0],)"
            R"([-3.0,4.0]],"age":9223372036854775807,"code":[[0.0,null,1e+30]]}}])");
  EXPECT_EQ(to_json({detection}, with({}, {})).dump(), R"([{"box":[1.0,2.0,3.0,4.0],"score":0.5}])");
}

TEST(ToJson, IsReadAsBoxesAgain) {
  const lensbox::Detection detection{{1, 2, 3, 4}, 0.5F, 0, {std::vector<float>{1}}};
  const auto detections = to_json({detection}, with({"cat"}, {{"age", {}, lensbox::ExtraKind::kValues}}));
  const Json document = {{"images", {{{"detections", detections}}}}};
  EXPECT_TRUE(at::equal(parse_boxes(document, "targets"), at::arange(1, 5, at::kDouble).view({1, 4})));
}

}  // namespace
