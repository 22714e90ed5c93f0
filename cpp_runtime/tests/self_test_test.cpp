#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "detect/steps.h"

namespace {

using lensbox::Box;
using lensbox::Detection;
using lensbox::Metadata;

using Detections = std::vector<Detection>;

Detection detection(Box box, float score, int64_t label = 0) {
  return {box, score, label, {std::vector<float>{score, 1}}};
}

// Forty detections, 100 px apart except the first two, whose IoU is 0.333. The last score is at the
// threshold.
Metadata stored() {
  Metadata metadata{};
  metadata.classes = {"a", "b"};
  metadata.extras = {{"pair", {2}, lensbox::ExtraKind::kValues}};
  lensbox::SelfTest& test = metadata.self_test;
  test.score_threshold = 0.25;
  test.iou_threshold = 0.5;
  test.detections = {detection({0, 0, 40, 40}, 0.9F), detection({20, 0, 60, 40}, 0.8F)};
  for (int i = 2; i < 40; ++i) {
    const auto x = static_cast<float>(100 * i);
    test.detections.push_back(detection({x, 0, x + 50, 50}, i == 39 ? 0.2505F : 0.71F - 0.005F * i, i % 2));
  }
  std::vector<double>& extra = test.extras.emplace_back();
  for (const Detection& each : test.detections) {
    extra.insert(extra.end(), {each.score, 1});
  }
  test.loss = 0.5;
  test.cpu = {.boxes = 0.01, .scores = 0.001, .loss = 1e-5, .extras = {0.01}};
  test.cuda = {.boxes = 0.5, .scores = 0.02, .loss = 1e-5, .extras = {0.1}};
  return metadata;
}

struct Mutant {
  const char* name;
  std::function<void(Detections&)> change;
  size_t exchanged;
  const char* failure;  // a part of the first message; empty: it passes
};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr const char* kLost =
    "expected detection 0 (score 0.9, label 0, box 0, 0, 40, 40) has no counterpart";

constexpr const char* kTooMany = "6 detections came or went by rounding, at most 2 of 40 may";

std::function<void(Detections&)> for_three(void (*change)(Detection&)) {
  return [change](Detections& found) { std::for_each(found.begin() + 1, found.begin() + 4, change); };
}

float& second_number(Detection& detection) {
  return std::get<std::vector<float>>(detection.extras[0])[1];
}

const std::vector<Mutant> kMutants{
    {"the same", [](Detections&) {}, 0, ""},
    {"another order", [](Detections& found) { std::ranges::reverse(found); }, 0, ""},
    {"within the tolerance",
     [](Detections& found) {
       found[0].box[2] += 0.009F;
       found[0].score -= 0.0009F;
     },
     0, ""},
    {"one at the threshold gone", [](Detections& found) { found.pop_back(); }, 1, ""},
    {"one at the threshold more",
     [](Detections& found) { found.push_back(detection({0, 300, 9, 309}, 0.2509F)); }, 1, ""},
    {"the other of two that suppress each other",
     [](Detections& found) { found[2] = detection({205, 0, 255, 50}, 0.7004F); }, 2, ""},
    {"three exchanged of forty",
     [](Detections& found) {
       found[2] = detection({205, 0, 255, 50}, 0.7004F);
       found.pop_back();
     },
     3, "3 detections came or went by rounding, at most 2 of 40 may"},
    // The rule takes a detection that replaces one at the same place for an exchange: several of them fail.
    {"boxes moved by 1 px", for_three([](Detection& each) { each.box[0] += 1; }), 6, kTooMany},
    {"other labels", for_three([](Detection& each) { each.label = 1 - each.label; }), 6, kTooMany},
    {"other extras", for_three([](Detection& each) { second_number(each) = 1.1F; }), 6, kTooMany},
    {"extras of NaN", for_three([](Detection& each) { second_number(each) = kNaN; }), 6, kTooMany},
    {"another score", [](Detections& found) { found[0].score = 0.5F; }, 1, "expected detection 0"},
    {"one gone", [](Detections& found) { found.erase(found.begin()); }, 0, kLost},
    {"none found", [](Detections& found) { found.clear(); }, 1, kLost},
    {"one more", [](Detections& found) { found.push_back(detection({0, 300, 9, 309}, 0.6F)); }, 0,
     "unexpected detection 40"},
    {"one twice", [](Detections& found) { found.push_back(found[0]); }, 0, "unexpected detection 40"},
    {"a looser NMS", [](Detections& found) { found.push_back(detection({0, 0, 40, 30}, 0.6F)); }, 0,
     "unexpected detection 40"},
    {"a stricter NMS", [](Detections& found) { found.erase(found.begin() + 1); }, 0, "expected detection 1"},
    {"a box of NaN", [](Detections& found) { found[0].box[0] = kNaN; }, 0, "expected detection 0"},
    {"a box of NaN at the threshold",
     [](Detections& found) { found.push_back(detection({kNaN, 0, 9, 9}, 0.2505F)); }, 0,
     "unexpected detection 40"},
    {"a score of NaN", [](Detections& found) { found[0].score = kNaN; }, 0, "expected detection 0"},
};

TEST(SelfTestRule, DistinguishesChangesFromRounding) {
  const Metadata metadata = stored();
  for (const auto& [name, change, exchanged, failure] : kMutants) {
    SCOPED_TRACE(name);
    Detections found = metadata.self_test.detections;
    change(found);
    const auto report = compare_with_stored(metadata, found, 0.5, /*on_cpu=*/true);
    const std::string first = report.passed() ? "" : report.failures.front();
    EXPECT_EQ(report.passed(), *failure == '\0') << first;
    EXPECT_NE(first.find(failure), std::string::npos) << first;
    EXPECT_EQ(report.exchanged, exchanged);
  }
}

TEST(SelfTestRule, ToleratesMoreOnAGpu) {
  const Metadata metadata = stored();
  Detections found = metadata.self_test.detections;
  for (Detection& each : found) {
    each.box[2] += 0.4F;
  }
  for (const bool on_cpu : {true, false}) {
    const auto report = compare_with_stored(metadata, found, 0.5, on_cpu);
    EXPECT_EQ(report.passed(), !on_cpu);
    EXPECT_NEAR(report.max_box_error, 0.4, 1e-4);
  }
}

TEST(SelfTestRule, ComparesTheLoss) {
  const Metadata metadata = stored();
  for (const double loss : {0.51, std::nan("")}) {
    const auto report = compare_with_stored(metadata, metadata.self_test.detections, loss, true);
    ASSERT_EQ(report.failures.size(), 1);
    EXPECT_TRUE(report.failures[0].starts_with("losses differ by")) << report.failures[0];
  }
}

}  // namespace
