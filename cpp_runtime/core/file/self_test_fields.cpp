#include <algorithm>

#include "file/metadata.h"

namespace lensbox {
namespace {

std::array<int64_t, 3> read_image_shape(const JsonField& field) {
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
    std::ranges::transform(item.box(), boxes.emplace_back().begin(),
                           [](double edge) { return static_cast<float>(edge); });
  }
  if (boxes.empty()) field.fail("must be at least one box");
  return boxes;
}

void expect_count(const JsonField& field, size_t count, size_t boxes) {
  if (count != boxes) field.fail("must be as many as the boxes, which are " + std::to_string(boxes));
}

std::vector<Detection> read_detections(const JsonField& field, size_t classes) {
  const std::vector<Box> boxes = read_boxes(field["boxes"]);
  const std::vector<double> scores = field["scores"].numbers(0, 1);
  expect_count(field["scores"], scores.size(), boxes.size());
  std::vector<Detection> detections;
  for (size_t i = 0; i < boxes.size(); ++i) {
    detections.push_back({boxes[i], static_cast<float>(scores[i])});
  }
  if (classes == 0) return detections;
  const std::vector<int64_t> labels = field["labels"].integers(0, static_cast<int64_t>(classes) - 1);
  expect_count(field["labels"], labels.size(), boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    detections[i].label = labels[i];
  }
  return detections;
}

// The numbers of `count` detections, each of which is a row of as many as the extra's shape has.
std::vector<double> read_extra(const JsonField& field, const Extra& extra, size_t count) {
  const std::vector<JsonField> rows = field.list();
  expect_count(field, rows.size(), count);
  const auto size = static_cast<size_t>(extra.size());
  std::vector<double> values;
  for (const JsonField& row : rows) {
    const std::vector<double> numbers = row.numbers(-kMaxFloat32, kMaxFloat32);
    if (numbers.size() != size) {
      row.fail("must be the " + std::to_string(size) + " numbers of the shape of " + extra.name + ", are " +
               std::to_string(numbers.size()));
    }
    values.insert(values.end(), numbers.begin(), numbers.end());
  }
  return values;
}

Tolerance read_tolerance(const JsonField& field, const std::vector<Extra>& extras) {
  Tolerance tolerance{.boxes = field["boxes"].number(0, kMaxFloat32),
                      .scores = field["scores"].number(0, kMaxFloat32),
                      .loss = field["loss"].number(0, kMaxFloat32),
                      .extras = {}};
  for (const Extra& extra : extras) {
    tolerance.extras.push_back(field["extras"][extra.name].number(0, kMaxFloat32));
  }
  return tolerance;
}

}  // namespace

SelfTest read_self_test(const JsonField& field, size_t classes, const std::vector<Extra>& extras) {
  SelfTest test{};
  test.image_shape = read_image_shape(field["image"]["shape"]);
  test.pixels = read_pixels(field["image"]["pixels"], test.image_shape);
  test.score_threshold = field["score_threshold"].number(0, 1);
  test.iou_threshold = field["iou_threshold"].number(0, 1);
  const JsonField expected = field["expected"];
  test.detections = read_detections(expected, classes);
  for (const Extra& extra : extras) {
    test.extras.push_back(read_extra(expected["extras"][extra.name], extra, test.detections.size()));
  }
  const JsonField loss = field["loss"];
  test.loss_predictions = read_boxes(loss["predictions"]);
  test.loss_targets = read_boxes(loss["targets"]);
  expect_count(loss["targets"], test.loss_targets.size(), test.loss_predictions.size());
  test.loss = loss["expected"].number(-kMaxFloat32, kMaxFloat32);
  test.cpu = read_tolerance(field["tolerance"]["cpu"], extras);
  test.cuda = read_tolerance(field["tolerance"]["cuda"], extras);
  return test;
}

}  // namespace lensbox
