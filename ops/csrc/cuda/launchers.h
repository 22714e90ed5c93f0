// The CUDA half of liblensbox_kernels. Arguments are raw memory, sizes and a stream; nothing here needs
// torch. Outputs and workspaces lie on the current device; outputs are contiguous. Each launcher returns the
// error of its launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../fit_math.h"
#include "../jpeg_color.h"
#include "../jpeg_data.h"
#include "../problems.h"

namespace lensbox {

// Write out[i] = giou(boxes1[i], boxes2[i]) for `slots` slots. The arithmetic is in double if in_double.
LENSBOX_KERNEL cudaError_t lensbox_cuda_giou(const SlotView& boxes1, const SlotView& boxes2, double eps,
                                             bool in_double, int64_t slots, const SlotView& out,
                                             cudaStream_t stream);

// Write the gradients that exist, each in the dtype of its boxes.
LENSBOX_KERNEL cudaError_t lensbox_cuda_giou_backward(const SlotView& grad, const SlotView& boxes1,
                                                      const SlotView& boxes2, double eps, bool in_double,
                                                      int64_t slots, const SlotView& grad1,
                                                      const SlotView& grad2, cudaStream_t stream);

LENSBOX_KERNEL cudaError_t lensbox_cuda_pairwise_giou(const PairwiseProblem& problem, double eps,
                                                      bool in_double, const SlotView& out,
                                                      cudaStream_t stream);

// Write the gradients that exist: grad1 [batch, rows, 4] and grad2 [batch, columns, 4], each in the
// dtype of its boxes. grad may have any strides.
LENSBOX_KERNEL cudaError_t lensbox_cuda_pairwise_giou_backward(const SlotView& grad,
                                                               const PairwiseProblem& problem, double eps,
                                                               bool in_double, const SlotView& grad1,
                                                               const SlotView& grad2, cudaStream_t stream);

// Return the bytes of workspace, which may hold anything, of a loss with work for so many threads; 0, and no
// workspace is needed, if one block does the work.
LENSBOX_KERNEL size_t lensbox_cuda_loss_workspace(int64_t threads);

// Write the loss and the normalizer max(sum(w), 1). The workspace is for problem.slots threads.
LENSBOX_KERNEL cudaError_t lensbox_cuda_masked_giou_loss_forward(const MaskedProblem& problem, void* loss,
                                                                 double* normalizer, void* workspace,
                                                                 cudaStream_t stream);

// Write every slot of the gradients, each in the dtype of its input. grad, of any dtype, loss and normalizer
// are scalars on the device; a grad without data stands for 1.
LENSBOX_KERNEL cudaError_t lensbox_cuda_masked_giou_loss_backward(const MaskedProblem& problem,
                                                                  const SlotView& grad, const void* loss,
                                                                  const double* normalizer,
                                                                  const MaskedGradients& out,
                                                                  cudaStream_t stream);

// Write the loss and its gradient in pred, in the dtype of pred: one launch, or two where that is slower or
// impossible, which also write the normalizer. The workspace is that of the forward.
LENSBOX_KERNEL cudaError_t lensbox_cuda_masked_giou_loss_and_grad(const MaskedProblem& problem, void* loss,
                                                                  double* normalizer,
                                                                  const SlotView& grad_pred, void* workspace,
                                                                  cudaStream_t stream);

// Write the loss and the normalizer max(number of targets, 1). The workspace is for images * slots
// threads. Offsets that break the rules of is_valid_segment make the loss NaN; the memory that such offsets
// point to is not read.
LENSBOX_KERNEL cudaError_t lensbox_cuda_jagged_giou_loss_forward(const JaggedProblem& problem, void* loss,
                                                                 double* normalizer, void* workspace,
                                                                 cudaStream_t stream);

// Write every slot of the gradients that exist, each in the dtype of its input; NaN where the
// offsets break the rules.
LENSBOX_KERNEL cudaError_t lensbox_cuda_jagged_giou_loss_backward(
    const JaggedProblem& problem, const SlotView& grad, const double* normalizer, const SlotView& grad_pred,
    const SlotView& grad_targets, cudaStream_t stream);

// Return the bytes of workspace, which may hold anything; 0 if none is needed.
LENSBOX_KERNEL size_t lensbox_cuda_padded_nms_workspace(const NmsProblem& problem);

// Up to 1,024 candidates an image: one launch. Otherwise a fixed number of launches for each slice of images,
// as many as can be sorted in 64 MiB.
LENSBOX_KERNEL cudaError_t lensbox_cuda_padded_nms(const NmsProblem& problem, void* workspace,
                                                   cudaStream_t stream);

// Write canvas and geometry of each of `count` images, whose memory is on the current device. Use one
// launch for every 128 images (63 before CUDA 13).
LENSBOX_KERNEL cudaError_t lensbox_cuda_fit(const kernels::ImageView* images, int64_t count,
                                            const Canvases& out, cudaStream_t stream);

// Write the number of each level of `planes` planes of `plane_size` pixels.
LENSBOX_KERNEL cudaError_t lensbox_cuda_look_up(const LevelTable& table, const uint8_t* pixels,
                                                int64_t planes, int64_t plane_size, void* out,
                                                cudaStream_t stream);

// The planes on the device for the components of a JPEG file, whose rows follow each other, and their widths;
// without chroma, nullptr and 0. The layout is that of nvjpegImage_t; the last plane is unused.
struct JpegPlanes {
  uint8_t* planes[4];
  size_t widths[4];
};

// Upsample chroma and convert to RGB, as jpeg_color.h describes, in one launch. `images`: on the device, at
// least one.
LENSBOX_KERNEL cudaError_t lensbox_cuda_convert_jpeg_colors(const JpegColors* images, int64_t count,
                                                            cudaStream_t stream);

// The bytes of device memory at which a copied file begins, and an array for jpeg_workspace().
struct JpegPlace {
  int64_t file, workspace;
};

// Write is_well_formed[i] for `count` files, with all arguments on the device.
LENSBOX_KERNEL cudaError_t lensbox_cuda_check_jpegs(uint8_t* memory, const JpegPlace* places,
                                                    const JpegScan* scans, int64_t count,
                                                    bool* is_well_formed, cudaStream_t stream);

// Open nvJPEG's library, once in a process, and create the decoder of the current device. Return false if the
// library cannot be opened, or the GPU has no JPEG decoder in hardware.
LENSBOX_KERNEL bool lensbox_cuda_open_nvjpeg(const char* library);

// Decode luma, or all planes as they are in the file, with the decoder of the current device, which must be
// open; one call at a time. Return false if it refuses. files: on the host, as lensbox_cpu_read_jpeg copied
// them; they may go when the stream is done.
LENSBOX_KERNEL bool lensbox_cuda_decode_jpegs(const uint8_t* const* files, const size_t* sizes,
                                              JpegPlanes* images, int64_t count, bool with_chroma,
                                              cudaStream_t stream);

}  // namespace lensbox
