#include <algorithm>
#include <cmath>
#include <vector>

#include "../box_math.h"
#include "box_block.h"
#include "launchers.h"
#include "parallel.h"
#include "vectors.h"

namespace lensbox {
namespace {

// One image's candidates, best first, as columns.
template <typename T>
struct Candidates {
  std::vector<T> x1, y1, x2, y2, area;
  std::vector<int64_t> index;     // position among the N boxes of the image
  std::vector<int64_t> category;  // empty if there are no categories
  std::vector<int64_t> huge;      // boxes of infinite area, whose pairs need huge_iou_exceeds()
  std::vector<uint8_t> removed;

  int64_t size() const { return static_cast<int64_t>(index.size()); }
  Box<T> box(int64_t i) const { return {x1[i], y1[i], x2[i], y2[i]}; }
};

// Return the positions of the scores above the threshold, by score descending, then index ascending; at most
// max_candidates.
template <typename Score>
std::vector<int64_t> rank(const std::vector<Score>& scores, Score threshold, int64_t max_candidates) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < static_cast<int64_t>(scores.size()); ++i) {
    if (scores[i] > threshold) order.push_back(i);  // never true of NaN
  }
  const auto better = [&](int64_t a, int64_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  };
  if (max_candidates < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + max_candidates, order.end(), better);
    order.resize(max_candidates);
  }
  std::sort(order.begin(), order.end(), better);
  return order;
}

template <typename T>
Candidates<T> gather(const SlotView& boxes, const SlotView* categories, int64_t first_slot,
                     std::vector<int64_t> order) {
  Candidates<T> out;
  const size_t count = order.size();
  for (auto* column : {&out.x1, &out.y1, &out.x2, &out.y2, &out.area}) {
    column->resize(count);
  }
  out.removed.assign(count, 0);
  out.category.resize(categories != nullptr ? count : 0);
  for (size_t i = 0; i < count; ++i) {
    const int64_t slot = first_slot + order[i];
    const auto box = load_box<T>(boxes, slot);
    out.x1[i] = box.x1;
    out.y1[i] = box.y1;
    out.x2[i] = box.x2;
    out.y2[i] = box.y2;
    out.area[i] = nms_area(box);
    if (std::isinf(out.area[i])) out.huge.push_back(static_cast<int64_t>(i));
    if (categories != nullptr) load_numbers(*categories, &slot, 1, &out.category[i]);
  }
  out.index = std::move(order);
  return out;
}

// Mark the candidates after `kept` of the same category for which exceeds(i) holds. `exceeds` captures by
// value, like every loop that with_widest_vectors() runs.
template <typename T, typename Exceeds>
void mark(Candidates<T>& candidates, int64_t kept, Exceeds exceeds) {
  const int64_t count = candidates.size();
  uint8_t* removed = candidates.removed.data();
  if (candidates.category.empty()) {
    with_widest_vectors([=] {
      for (int64_t i = kept + 1; i < count; ++i) {
        removed[i] |= exceeds(i);
      }
    });
    return;
  }
  const int64_t* categories = candidates.category.data();
  const int64_t category = categories[kept];
  with_widest_vectors([=] {
    for (int64_t i = kept + 1; i < count; ++i) {
      removed[i] |= static_cast<uint8_t>(categories[i] == category) & static_cast<uint8_t>(exceeds(i));
    }
  });
}

// Mark every later candidate that overlaps `kept` by more than the threshold.
template <typename T>
void suppress(Candidates<T>& candidates, int64_t kept, T threshold) {
  const Box<T> box = candidates.box(kept);
  const T area = candidates.area[kept];
  const T *x1 = candidates.x1.data(), *y1 = candidates.y1.data(), *x2 = candidates.x2.data(),
          *y2 = candidates.y2.data(), *areas = candidates.area.data();
  if (std::isinf(area)) {
    mark(candidates, kept,
         [=](int64_t i) { return huge_iou_exceeds(box, {x1[i], y1[i], x2[i], y2[i]}, threshold); });
    return;
  }
  mark(candidates, kept,
       [=](int64_t i) { return iou_exceeds(box, area, {x1[i], y1[i], x2[i], y2[i]}, areas[i], threshold); });
  for (const int64_t i : candidates.huge) {
    const bool same_category =
        candidates.category.empty() || candidates.category[i] == candidates.category[kept];
    if (i <= kept || !same_category) continue;
    candidates.removed[i] |= huge_iou_exceeds(box, candidates.box(i), threshold);
  }
}

// Suppress greedily. Return the positions of the kept boxes among the image's boxes, best first.
template <typename T>
std::vector<int64_t> keep(Candidates<T> candidates, T threshold, int64_t max_detections) {
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < candidates.size() && static_cast<int64_t>(kept.size()) < max_detections; ++i) {
    if (candidates.removed[i]) continue;
    kept.push_back(candidates.index[i]);
    suppress(candidates, i, threshold);
  }
  return kept;
}

template <typename T, typename Score>
void run_image(const NmsProblem& problem, int64_t image) {
  const int64_t first = image * problem.per_image;
  std::vector<Score> values(problem.per_image);
  for_each_block(first, first + problem.per_image, [&](const int64_t* slots, int count) {
    load_numbers(problem.scores, slots, count, values.data() + (slots[0] - first));
  });
  auto order = rank(values, static_cast<Score>(problem.score_threshold), problem.max_candidates);
  const SlotView* categories = problem.has_categories ? &problem.categories : nullptr;
  const auto candidates = gather<T>(problem.boxes, categories, first, std::move(order));
  const auto kept = keep(candidates, static_cast<T>(problem.iou_threshold), problem.max_detections);
  problem.out_counts[image] = static_cast<int32_t>(kept.size());
  for (int64_t k = 0; k < problem.max_detections; ++k) {
    const int64_t out = image * problem.max_detections + k;
    const bool filled = k < static_cast<int64_t>(kept.size());
    problem.out_indices[out] = filled ? kept[k] : -1;
    const int64_t in = first + (filled ? kept[k] : 0);
    copy_slot(problem.boxes, in, problem.out_boxes, out, 4, filled);
    copy_slot(problem.scores, in, problem.out_scores, out, 1, filled);
  }
}

}  // namespace

void lensbox_cpu_padded_nms(const NmsProblem& problem) {
  const bool double_boxes = problem.boxes.dtype == DType::kFloat64,
             double_scores = problem.scores.dtype == DType::kFloat64;
  const auto run = double_boxes ? (double_scores ? run_image<double, double> : run_image<double, float>)
                                : (double_scores ? run_image<float, double> : run_image<float, float>);
  parallel_for(problem.batch, [&](int64_t image) { run(problem, image); });
}

}  // namespace lensbox
