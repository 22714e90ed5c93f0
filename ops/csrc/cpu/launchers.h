// The CPU half of liblensbox_kernels. Each function computes the same as the CUDA launcher of its name
// (cuda/launchers.h), without a stream and a workspace. It returns when the work is done, which `fit`, NMS
// and the losses share among threads (parallel.h).
#pragma once

#include <cstdint>

#include "../fit_math.h"
#include "../jpeg_color.h"
#include "../jpeg_data.h"
#include "../problems.h"

namespace lensbox {

LENSBOX_KERNEL void lensbox_cpu_giou(const SlotView& boxes1, const SlotView& boxes2, double eps,
                                     bool in_double, int64_t slots, const SlotView& out);
LENSBOX_KERNEL void lensbox_cpu_giou_backward(const SlotView& grad, const SlotView& boxes1,
                                              const SlotView& boxes2, double eps, bool in_double,
                                              int64_t slots, const SlotView& grad1, const SlotView& grad2);

LENSBOX_KERNEL void lensbox_cpu_pairwise_giou(const PairwiseProblem& problem, double eps, bool in_double,
                                              const SlotView& out);
LENSBOX_KERNEL void lensbox_cpu_pairwise_giou_backward(const SlotView& grad, const PairwiseProblem& problem,
                                                       double eps, bool in_double, const SlotView& grad1,
                                                       const SlotView& grad2);

LENSBOX_KERNEL void lensbox_cpu_masked_giou_loss_forward(const MaskedProblem& problem, void* loss,
                                                         double* normalizer);
LENSBOX_KERNEL void lensbox_cpu_masked_giou_loss_backward(const MaskedProblem& problem, const SlotView& grad,
                                                          const void* loss, const double* normalizer,
                                                          const MaskedGradients& out);
LENSBOX_KERNEL void lensbox_cpu_masked_giou_loss_and_grad(const MaskedProblem& problem, void* loss,
                                                          double* normalizer, const SlotView& grad_pred);

// Return the first image whose offsets break the rules of is_valid_segment, or -1. The two kernels that
// follow need valid offsets.
LENSBOX_KERNEL int64_t lensbox_cpu_first_invalid_segment(const JaggedProblem& problem);
LENSBOX_KERNEL void lensbox_cpu_jagged_giou_loss_forward(const JaggedProblem& problem, void* loss,
                                                         double* normalizer);
LENSBOX_KERNEL void lensbox_cpu_jagged_giou_loss_backward(const JaggedProblem& problem, const SlotView& grad,
                                                          const double* normalizer, const SlotView& grad_pred,
                                                          const SlotView& grad_targets);

LENSBOX_KERNEL void lensbox_cpu_padded_nms(const NmsProblem& problem);

LENSBOX_KERNEL void lensbox_cpu_fit(const kernels::ImageView* images, int64_t count, const Canvases& out);

// Write the number of each level of `planes` planes of `plane_size` pixels.
LENSBOX_KERNEL void lensbox_cpu_look_up(const LevelTable& table, const uint8_t* pixels, int64_t planes,
                                        int64_t plane_size, void* out);

// Read the header of a JPEG file and copy the file to `out`, which holds `size` bytes or is nullptr, without
// comments, application data and what follows its end. Return the bytes of the copy, to which `scan` refers,
// or 0 for a file of a kind that decoders may read differently. Accepted: baseline, 8 bits, gray or YCbCr in
// one scan, chroma of full or half resolution, at most 2^24 pixels, complete.
LENSBOX_KERNEL int64_t lensbox_cpu_read_jpeg(const uint8_t* file, size_t size, uint8_t* out, JpegScan& scan);

// Return whether the coded data of such a copy are sound to the last bit, walked in `part_count` parts as a
// GPU does, one after the other.
LENSBOX_KERNEL bool lensbox_cpu_is_well_formed_jpeg(const uint8_t* file, const JpegScan& scan,
                                                    int32_t part_count);

// Upsample chroma and convert to RGB, as jpeg_color.h describes.
LENSBOX_KERNEL void lensbox_cpu_convert_jpeg_colors(const JpegColors* images, int64_t count);

}  // namespace lensbox
