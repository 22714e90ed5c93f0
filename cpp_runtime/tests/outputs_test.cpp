#include "backends/outputs.h"

#include "helpers.h"

namespace {

using lensbox::FoundNumbers;
using lensbox::Outputs;
using lensbox::OutputType;

const Outputs kPlain{};
const Outputs kNamed{
    2, {{"points", {5, 2}, lensbox::ExtraKind::kPoints}, {"code", {}, lensbox::ExtraKind::kValues}}};

// One image of three slots.
FoundNumbers found(int64_t count, const std::vector<int64_t>& labels = {}) {
  return {.boxes = {{1, 3, 4}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
          .scores = {{1, 3}, std::vector<float>{0.75F, 0.5F, 0.25F}},
          .counts = {{1}, std::vector<int64_t>{count}},
          .labels = {labels.empty() ? std::vector<int64_t>{} : std::vector<int64_t>{1, 3}, labels}};
}

TEST(Collect, TakesTheSlotsThatTheCountNames) {
  const auto detections = collect("model.onnx", kPlain, found(2)).at(0);
  ASSERT_EQ(detections.size(), 2U);
  EXPECT_EQ(detections[1].box, (lensbox::Box{5, 6, 7, 8}));
  EXPECT_EQ(detections[1].score, 0.5F);
}

TEST(Collect, GivesEachDetectionItsExtras) {
  FoundNumbers numbers = found(2, {1, 0, 9});
  std::vector<float> points(20);
  points[10] = 7;
  numbers.extras = {{{1, 2, 5, 2}, points}, {{1, 2}, std::vector<int64_t>{3, 4}}};
  const auto detection = collect("model.onnx", kNamed, numbers).at(0).at(1);
  EXPECT_EQ(detection.label, 0);
  EXPECT_EQ(std::get<std::vector<float>>(detection.extras[0])[0], 7);
  EXPECT_EQ(std::get<std::vector<int64_t>>(detection.extras[1]), std::vector<int64_t>{4});
}

TEST(Collect, RefusesCountsBeyondTheSlots) {
  for (const int64_t count : {int64_t{-1}, int64_t{4}, int64_t{1} << 32}) {
    expect_error<lensbox::ArtifactError>([&] { collect("model.onnx", kPlain, found(count)); },
                                         {"counts of 0 to 3, got", std::to_string(count).c_str()});
  }
}

TEST(Collect, RefusesLabelsWithoutAClass) {
  for (const int64_t label : {int64_t{-1}, int64_t{2}, int64_t{1} << 32}) {
    expect_error<lensbox::ArtifactError>(
        [&] { collect("model.onnx", {2, {}}, found(2, {1, label, 0})); },
        {"model.onnx", "labels from 0 to 1, as there are 2 classes, got", std::to_string(label).c_str()});
  }
}

TEST(CheckOutputs, NamesWhatIsWrong) {
  const std::vector<OutputType> good{{"Float", {2, 3, 4}}, {"Float", {2, 3}},       {"Int", {2}},
                                     {"Long", {2, 3}},     {"Float", {2, 3, 5, 2}}, {"Long", {2, 3}}};
  check_outputs("model.onnx", kNamed, good, 2);
  const auto refused = [&](size_t place, const OutputType& other, std::initializer_list<const char*> parts) {
    std::vector<OutputType> types = good;
    types[place] = other;
    expect_error<lensbox::ArtifactError>([&] { check_outputs("model.onnx", kNamed, types, 2); }, parts);
  };
  refused(0, {"Float", {2, 3, 5}}, {"method detect must", "got [2, 3, 5], [2, 3] and [2] for 2"});
  refused(0, {"Float", {2, 3}}, {"got [2, 3], [2, 3] and [2] for 2"});
  refused(1, {"Float", {2, 4}}, {"got [2, 3, 4], [2, 4]"});
  refused(2, {"Int", {}}, {"and [] for 2"});
  refused(3, {"Int", {2, 3}}, {"labels as Long [2, 3], got Int [2, 3]"});
  refused(4, {"Long", {2, 3, 5, 2}}, {"points as Float [2, 3, 5, 2], got Long"});
  refused(5, {"Float", {2, 3, 1}}, {"code as Float or Long [2, 3], got Float [2, 3, 1]"});
}

}  // namespace
