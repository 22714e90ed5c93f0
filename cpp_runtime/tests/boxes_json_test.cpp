#include "boxes_json.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <lensbox/error.h>

#include <cmath>

#include "detections_json.h"
#include "helpers.h"

namespace {

using Json = nlohmann::ordered_json;

at::Tensor parse(const char* text) {
  return parse_boxes(Json::parse(text), "predictions");
}

TEST(ParseBoxes, TakesEveryForm) {
  const at::Tensor two = at::tensor({1., 2.5, 3., 4., 5., 6., 7., -8e-3}).reshape({2, 4});
  const at::Tensor padded = at::tensor({0., 0., 0., 0., 1., 2., 3., 4.}).reshape({2, 1, 4});
  const at::Tensor none = at::empty({0, 4}, at::kDouble);
  const std::pair<const char*, at::Tensor> forms[] = {
      {"[[1, 2.5, 3, 4], [5, 6, 7, -8e-3]]", two},
      {"[[[1, 2.5, 3, 4]], [[5, 6, 7, -8e-3]]]", two.unsqueeze(1)},
      {R"({"boxes": [[1, 2.5, 3, 4], [5, 6, 7, -8e-3]], "note": 1})", two},
      {R"({"images": [{"file": "a", "detections": [
          {"box": [1, 2.5, 3, 4], "score": 0.5}, {"box": [5, 6, 7, -8e-3], "score": 0.4}]}]})",
       two},
      {R"({"images": [{"detections": []}, {"detections": [{"box": [1, 2, 3, 4]}]}]})", padded},
      {"[]", none},
      {"[[], []]", none.expand({2, 0, 4})},
      {R"({"images": [{"detections": []}]})", none},
  };
  for (const auto& [text, expected] : forms) {
    EXPECT_TRUE(at::equal(parse(text), expected)) << text;
  }
}

TEST(ParseBoxes, NamesTheElementTheRuleAndTheValue) {
  const std::pair<const char*, const char*> wrong[] = {
      {"7", "predictions must be a list, got 7"},
      {R"({"box": []})",
       R"(predictions must have "boxes", or "images" as printed by detect, got {"box":[]})"},
      {"[[1, 2, 3, 4], [1, 2, 3]]",
       "predictions[1] must be a box, four numbers [x1, y1, x2, y2], got [1,2,3]"},
      {"[1, 2, 3, 4]", "predictions[0] must be a list, got 1"},
      {R"([[1, 2, 3, "4"]])", "predictions[0][3] must be a number"},
      {"[[1, 2, true, 4]]", "predictions[0][2] must be a number"},
      {"[[[1, 2, 3, 4]], []]",
       "predictions[1] must have as many boxes as the first image of the batch (1, pad"},
      {"[[[1, 2, 3, 4]], [[1, 2, 3, null]]]", "predictions[1][0][3] must be a number"},
      {R"({"boxes": [[1]]})", "predictions.boxes[0] must be a box"},
      {R"({"images": [{"file": "a", "error": "x"}]})", "there is no predictions.images[0].detections"},
  };
  for (const auto& [text, message] : wrong) {
    expect_error<lensbox::InputError>([&] { parse(text); }, {message});
  }
}

TEST(ToJson, PrintsShortDecimalsAndNullForNan) {
  lensbox::Metadata metadata{};
  metadata.extras = {{"age", {}, lensbox::ExtraKind::kValues}};
  const lensbox::Detection detection{{1, 2, 3, 4}, 0.3F, 0, {std::vector<float>{NAN}}};
  EXPECT_EQ(to_json({detection}, metadata).dump(),
            R"([{"box":[1.0,2.0,3.0,4.0],"score":0.3,"extras":{"age":null}}])");
}

}  // namespace
