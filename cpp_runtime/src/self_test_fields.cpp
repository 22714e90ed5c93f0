#include "self_test_fields.h"

#include <limits>

namespace lensbox {
namespace {

constexpr int64_t kMostPixels = 1 << 20;
constexpr double kGreatest = std::numeric_limits<float>::max();  // the tensors are float32

std::array<int64_t, 3> read_shape(const JsonField& field) {
  const std::vector<int64_t> shape = field.integers(1, kMostPixels);
  if (shape.size() != 3 || (shape[0] != 1 && shape[0] != 3 && shape[0] != 4)) {
    field.fail("must be [C, H, W] with 1, 3 or 4 channels");
  }
  // No product here overflows: each factor is at most 2^20.
  if (shape[0] * shape[1] * shape[2] > kMostPixels) {
    field.fail("must be at most " + std::to_string(kMostPixels) + " values");
  }
  return {shape[0], shape[1], shape[2]};
}

std::vector<uint8_t> read_pixels(const JsonField& field, const std::array<int64_t, 3>& shape) {
  const std::vector<int64_t> values = field.integers(0, 255);
  const int64_t count = shape[0] * shape[1] * shape[2];
  if (static_cast<int64_t>(values.size()) != count) {
    field.fail("must be the " + std::to_string(count) + " values of the image's shape, are " +
               std::to_string(values.size()));
  }
  return {values.begin(), values.end()};
}

std::vector<Box> read_boxes(const JsonField& field) {
  std::vector<Box> boxes;
  for (const JsonField& item : field.list()) {
    const std::vector<double> values = item.numbers(-kGreatest, kGreatest);
    if (values.size() != 4) item.fail("must be four numbers [x1, y1, x2, y2]");
    Box& box = boxes.emplace_back();
    for (size_t k = 0; k < 4; ++k) {
      box[k] = static_cast<float>(values[k]);
    }
  }
  if (boxes.empty()) field.fail("must be at least one box");
  return boxes;
}

void expect_count(const JsonField& field, size_t count, size_t boxes) {
  if (count != boxes) field.fail("must be as many as the boxes, which are " + std::to_string(boxes));
}

std::vector<Detection> read_detections(const JsonField& field) {
  const std::vector<Box> boxes = read_boxes(field["boxes"]);
  const std::vector<double> scores = field["scores"].numbers(0, 1);
  expect_count(field["scores"], scores.size(), boxes.size());
  std::vector<Detection> detections;
  for (size_t i = 0; i < boxes.size(); ++i) {
    detections.push_back({boxes[i], static_cast<float>(scores[i])});
  }
  return detections;
}

Tolerance read_tolerance(const JsonField& field) {
  return {.boxes = field["boxes"].number(0, kGreatest),
          .scores = field["scores"].number(0, kGreatest),
          .loss = field["loss"].number(0, kGreatest)};
}

}  // namespace

SelfTest read_self_test(const JsonField& field) {
  SelfTest test{};
  test.image_shape = read_shape(field["image"]["shape"]);
  test.pixels = read_pixels(field["image"]["pixels"], test.image_shape);
  test.score_threshold = field["score_threshold"].number(0, 1);
  test.iou_threshold = field["iou_threshold"].number(0, 1);
  test.detections = read_detections(field["expected"]);
  const JsonField loss = field["loss"];
  test.loss_predictions = read_boxes(loss["predictions"]);
  test.loss_targets = read_boxes(loss["targets"]);
  expect_count(loss["targets"], test.loss_targets.size(), test.loss_predictions.size());
  test.loss = loss["expected"].number(-kGreatest, kGreatest);
  test.cpu = read_tolerance(field["tolerance"]["cpu"]);
  test.cuda = read_tolerance(field["tolerance"]["cuda"]);
  return test;
}

}  // namespace lensbox
