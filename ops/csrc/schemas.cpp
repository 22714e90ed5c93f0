// The schemas of all ops. Names that begin with an underscore are internal: forward and backward halves that
// the autograd formulas call, so that torch.compile can see through them.

#include <torch/library.h>

namespace {

constexpr const char* kSchemas[] = {
    "giou(Tensor boxes1, Tensor boxes2, float eps=1e-7) -> Tensor",
    "_giou_backward(Tensor grad, Tensor boxes1, Tensor boxes2, float eps, bool[2] output_mask)"
    " -> (Tensor, Tensor)",

    "pairwise_giou(Tensor boxes1, Tensor boxes2, float eps=1e-7) -> Tensor",
    "_pairwise_giou_backward(Tensor grad, Tensor boxes1, Tensor boxes2, float eps, bool[2] output_mask)"
    " -> (Tensor, Tensor)",

    "masked_giou_loss(Tensor pred, Tensor target, Tensor? weight=None, float eps=1e-7) -> Tensor",
    "_masked_giou_loss_forward(Tensor pred, Tensor target, Tensor? weight, float eps)"
    " -> (Tensor loss, Tensor normalizer)",
    "_masked_giou_loss_backward(Tensor grad, Tensor pred, Tensor target, Tensor? weight, Tensor? loss,"
    " Tensor normalizer, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    "masked_giou_loss_and_grad(Tensor pred, Tensor target, Tensor? weight=None, float eps=1e-7)"
    " -> (Tensor loss, Tensor grad)",

    "jagged_giou_loss(Tensor pred, Tensor targets, Tensor offsets, float eps=1e-7) -> Tensor",
    "_jagged_giou_loss_forward(Tensor pred, Tensor targets, Tensor offsets, float eps)"
    " -> (Tensor loss, Tensor normalizer)",
    "_jagged_giou_loss_backward(Tensor grad, Tensor pred, Tensor targets, Tensor offsets,"
    " Tensor normalizer, float eps, bool[2] output_mask) -> (Tensor, Tensor)",

    "padded_nms(Tensor boxes, Tensor scores, float iou_threshold, float score_threshold,"
    " SymInt max_candidates, SymInt max_detections, Tensor? categories=None)"
    " -> (Tensor boxes, Tensor scores, Tensor indices, Tensor counts)",

    "fit(Tensor[] images, int height, int width, str fit='letterbox', str filter='bilinear',"
    " str order='rgb', int fill=0, float[]? mean=None, float[]? std=None, ScalarType? dtype=None)"
    " -> (Tensor canvases, Tensor geometry)",

    // Composed of torch's ops: without kernels of their own.
    "restore_boxes(Tensor boxes, Tensor geometry) -> Tensor",
    "restore_points(Tensor points, Tensor geometry) -> Tensor",
    "geometry_of_windows(Tensor geometry, Tensor windows) -> Tensor"};

}  // namespace

TORCH_LIBRARY(lensbox, m) {
  for (const char* schema : kSchemas) {
    m.def(schema, {at::Tag::pt2_compliant_tag});
  }
  // The op reads its thresholds on the host, which a CUDA graph cannot capture.
  m.def(
      "padded_nms.tensor_thresholds(Tensor boxes, Tensor scores, Tensor iou_threshold,"
      " Tensor score_threshold, SymInt max_candidates, SymInt max_detections, Tensor? categories=None)"
      " -> (Tensor boxes, Tensor scores, Tensor indices, Tensor counts)",
      {at::Tag::pt2_compliant_tag, at::Tag::cudagraph_unsafe});
}
