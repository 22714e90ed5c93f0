// What the NMS launchers take: raw memory, no ATen.
#pragma once

#include <cstdint>

#include "../slot_view.h"

namespace lensbox {

struct NmsProblem {
  SlotView boxes;       // [batch, per_image] slots of four coordinates
  SlotView scores;      // [batch, per_image]
  SlotView categories;  // [batch, per_image] int64, where has_categories
  bool has_categories;
  int64_t batch, per_image;
  double iou_threshold, score_threshold;
  int64_t max_candidates, max_detections;
  // Contiguous outputs [batch, max_detections], in the dtypes of boxes and scores.
  SlotView out_boxes, out_scores;
  int64_t* out_indices;
  int32_t* out_counts;  // [batch]
};

}  // namespace lensbox
