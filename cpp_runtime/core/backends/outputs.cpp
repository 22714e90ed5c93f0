#include "backends/outputs.h"

#include <algorithm>

#include "file/errors.h"

namespace lensbox {
namespace {

int64_t checked_label(const std::filesystem::path& artifact, int64_t classes, int64_t label) {
  if (label >= 0 && label < classes) return label;
  fail_artifact(artifact, "method detect must return labels from 0 to " + std::to_string(classes - 1) +
                              ", as there are " + std::to_string(classes) + " classes, got " +
                              std::to_string(label));
}

// Return the numbers of a slot, one of the places of a batch for detections.
ExtraValues extra_of(const OutputNumbers& numbers, int64_t slot, int64_t size) {
  return std::visit(
      [&](const auto& values) -> ExtraValues {
        return std::vector(values.begin() + slot * size, values.begin() + (slot + 1) * size);
      },
      numbers.values);
}

}  // namespace

std::vector<std::string> Outputs::names() const {
  std::vector<std::string> names{"boxes", "scores", "counts"};
  if (classes > 0) names.emplace_back("labels");
  for (const Extra& extra : extras) {
    names.push_back(extra.name);
  }
  return names;
}

Outputs outputs_of(const Metadata& metadata) {
  return {static_cast<int64_t>(metadata.classes.size()), metadata.extras};
}

std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + text + "]";
}

std::string OutputType::described() const {
  return type + " " + text_of(sizes);
}

void check_outputs(const std::filesystem::path& artifact, const Outputs& outputs,
                   const std::vector<OutputType>& found, int64_t batch) {
  const OutputType &boxes = found.at(0), &scores = found.at(1), &counts = found.at(2);
  const std::vector<int64_t> slots{batch, boxes.sizes.size() == 3 ? boxes.sizes[1] : -1};
  if (boxes.sizes != std::vector{batch, slots[1], int64_t{4}} || scores.sizes != slots ||
      counts.sizes != std::vector{batch}) {
    fail_artifact(
        artifact,
        "method detect must return boxes [B, K, 4], scores [B, K] and counts [B] for B canvases, got " +
            text_of(boxes.sizes) + ", " + text_of(scores.sizes) + " and " + text_of(counts.sizes) + " for " +
            std::to_string(batch));
  }
  if (outputs.classes > 0 && (found.at(3).sizes != slots || found[3].type != "Long")) {
    fail_artifact(artifact, "method detect must return labels as Long " + text_of(slots) + ", got " +
                                found[3].described());
  }
  for (size_t i = 0; i < outputs.extras.size(); ++i) {
    const Extra& extra = outputs.extras[i];
    const OutputType& values = found.at(found.size() - outputs.extras.size() + i);
    std::vector<int64_t> wanted = slots;
    wanted.insert(wanted.end(), extra.shape.begin(), extra.shape.end());
    const bool is_integer = extra.kind == ExtraKind::kValues && values.type == "Long";
    if (values.sizes == wanted && (is_integer || values.type == "Float")) continue;
    fail_artifact(artifact, "method detect must return " + extra.name + " as Float " +
                                (extra.kind == ExtraKind::kValues ? "or Long " : "") + text_of(wanted) +
                                ", got " + values.described());
  }
}

int64_t largest_count(const std::filesystem::path& artifact, const OutputNumbers& counts, int64_t slots) {
  int64_t largest = 0;
  for (const int64_t count : std::get<std::vector<int64_t>>(counts.values)) {
    largest = std::max(largest, count);
    if (count >= 0 && count <= slots) continue;
    fail_artifact(artifact, "method detect must return counts of 0 to " + std::to_string(slots) + ", got " +
                                std::to_string(count));
  }
  return largest;
}

std::vector<std::vector<Detection>> collect(const std::filesystem::path& artifact, const Outputs& outputs,
                                            const FoundNumbers& found) {
  const int64_t batch = found.boxes.sizes.at(0);
  const int64_t slots = found.boxes.sizes.at(1);
  largest_count(artifact, found.counts, slots);
  std::vector<std::vector<Detection>> detections(static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < found.counts.integers()[b]; ++i) {
      const int64_t slot = b * slots + i;
      Detection& detection = detections[b].emplace_back();
      std::copy_n(found.boxes.floats() + 4 * slot, 4, detection.box.begin());
      detection.score = found.scores.floats()[slot];
      if (outputs.classes > 0) {
        detection.label = checked_label(artifact, outputs.classes, found.labels.integers()[slot]);
      }
      for (size_t e = 0; e < found.extras.size(); ++e) {
        detection.extras.push_back(
            extra_of(found.extras[e], b * found.extras[e].sizes.at(1) + i, outputs.extras[e].size()));
      }
    }
  }
  return detections;
}

}  // namespace lensbox
