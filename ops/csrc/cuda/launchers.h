// Launchers of the CUDA kernels: raw memory, sizes and a stream, no ATen.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../letterbox_math.h"
#include "../problems.h"

namespace lensbox {

// out[i] = giou(boxes1[i], boxes2[i]) for `slots` slots; out is contiguous. Arithmetic in double where
// in_double.
cudaError_t launch_giou(const SlotView& boxes1, const SlotView& boxes2, double eps, bool in_double,
                        int64_t slots, const SlotView& out, cudaStream_t stream);

// Writes the gradients that are not nullptr, each contiguous and in the dtype of its boxes.
cudaError_t launch_giou_backward(const SlotView& grad, const SlotView& boxes1, const SlotView& boxes2,
                                 double eps, bool in_double, int64_t slots, const SlotView* grad1,
                                 const SlotView* grad2, cudaStream_t stream);

// out is contiguous. Arithmetic in double where in_double.
cudaError_t launch_pairwise_giou(const PairwiseProblem& problem, double eps, bool in_double,
                                 const SlotView& out, cudaStream_t stream);

// Writes the gradients that are not nullptr: grad1 [batch, rows, 4] and grad2 [batch, columns, 4], each
// contiguous and in the dtype of its boxes. grad may have any strides.
cudaError_t launch_pairwise_giou_backward(const SlotView& grad, const PairwiseProblem& problem, double eps,
                                          bool in_double, const SlotView* grad1, const SlotView* grad2,
                                          cudaStream_t stream);

struct MaskedProblem {
  SlotView pred, target;  // [slots] of four coordinates
  SlotView weight;  // [slots] where is_weighted; otherwise a slot counts once unless y2 of its target is 0
  bool is_weighted;
  int64_t slots;
  double eps;
  bool in_double;  // the arithmetic, and the dtype of the loss
};

// Writes the loss and the normalizer max(sum(w), 1).
//   workspace   2 doubles for each block of loss_shape(slots) (launch.h), in any state
//   ticket      holds 0, and does so again when the launch is over
// With one block neither is used.
cudaError_t launch_masked_giou_loss_forward(const MaskedProblem& problem, double* workspace,
                                            unsigned int* ticket, void* loss, double* normalizer,
                                            cudaStream_t stream);

// Where gradients go; nullptr for one that nobody asked for.
struct MaskedGradients {
  const SlotView *pred, *target, *weight;
};

// Writes every slot of the gradients, each contiguous and in the dtype of its input. grad, of any dtype, loss
// and normalizer are scalars on the device; a grad without data stands for 1.
cudaError_t launch_masked_giou_loss_backward(const MaskedProblem& problem, const SlotView& grad,
                                             const void* loss, const double* normalizer,
                                             const MaskedGradients& out, cudaStream_t stream);

// Writes the loss and its gradient in pred, contiguous and in the dtype of pred: one launch, or two where
// that is slower or impossible, which also write the normalizer.
cudaError_t launch_masked_giou_loss_and_grad(const MaskedProblem& problem, double* workspace,
                                             unsigned int* ticket, void* loss, double* normalizer,
                                             const SlotView& grad_pred, cudaStream_t stream);

struct JaggedProblem {
  SlotView pred;     // [images, slots]
  SlotView targets;  // [targets]
  SlotView offsets;  // [images + 1] int64 or int32; image i has the targets offsets[i] to offsets[i + 1]
  int64_t images, slots, target_count;
};

// Writes the loss and the normalizer max(number of targets, 1); see launch_masked_giou_loss_forward for the
// workspace and the ticket. Offsets that break the rules of is_valid_segment make the loss NaN; what they
// would point to is not read.
cudaError_t launch_jagged_giou_loss_forward(const JaggedProblem& problem, double eps, bool in_double,
                                            double* workspace, unsigned int* ticket, void* loss,
                                            double* normalizer, cudaStream_t stream);

// Writes every slot of the gradients that are not nullptr, each contiguous and in the dtype of its input; NaN
// where the offsets break the rules.
cudaError_t launch_jagged_giou_loss_backward(const SlotView& grad, const JaggedProblem& problem,
                                             const double* normalizer, double eps, bool in_double,
                                             const SlotView* grad_pred, const SlotView* grad_targets,
                                             cudaStream_t stream);

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

// One block handles an image, so an image has at most this many candidates here.
constexpr int64_t kMaxBlockCandidates = 1024;

// One launch. Needs min(per_image, max_candidates) <= kMaxBlockCandidates.
cudaError_t launch_padded_nms(const NmsProblem& problem, cudaStream_t stream);

// With fewer threads an image, the overlaps take less time than the blocks' meeting.
constexpr int kLeastSplitThreads = 128;

// Whether the images are few enough for several blocks each. Needs min(per_image, max_candidates) <=
// kMaxBlockCandidates, as launch_padded_nms() does.
bool padded_nms_should_split(const NmsProblem& problem);

// Words of workspace, in any state.
int64_t padded_nms_split_words(const NmsProblem& problem);

// One launch. `tickets`: a counter for each image, 0 and so again when the launch is over.
cudaError_t launch_padded_nms_split(const NmsProblem& problem, unsigned int* workspace, unsigned int* tickets,
                                    cudaStream_t stream);

// The overlaps of all pairs are kept as bits: 2^17 candidates take 2 GiB an image.
constexpr int64_t kMaxCandidates = int64_t{1} << 17;

// Bytes of workspace, 256-byte aligned, in any state.
size_t padded_nms_large_workspace(const NmsProblem& problem);

// For any number of candidates up to kMaxCandidates: a fixed number of launches, and two more for each
// further slice of images where the overlap bits of all images would take more than 1 GiB.
cudaError_t launch_padded_nms_large(const NmsProblem& problem, void* workspace, cudaStream_t stream);

// Writes canvas and geometry of each of `count` images, whose memory is on the current device. One launch for
// every 63 of them.
cudaError_t launch_letterbox(const ImageView* images, int64_t count, const Canvases& out,
                             cudaStream_t stream);

// The most counters that a launch can have.
constexpr unsigned int kMaxTickets = 32;

// Gives `tickets` kMaxTickets counters on the current device that hold 0 and that no launch running at the
// same time shares. A launch on `stream` leaves them at 0. `spare` has room for as many, in any state: they
// are zeroed, by one more launch, should all others be taken.
cudaError_t take_tickets(cudaStream_t stream, unsigned int* spare, unsigned int** tickets);

}  // namespace lensbox
