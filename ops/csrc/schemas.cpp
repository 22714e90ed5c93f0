// The schemas of all ops. Names that begin with an underscore are internal: forward and backward halves that
// the autograd formulas call, so that torch.compile can see through them.

#include <torch/library.h>

TORCH_LIBRARY(lensbox, m) {
  const std::vector<at::Tag> compliant = {at::Tag::pt2_compliant_tag};
  m.def("giou(Tensor boxes1, Tensor boxes2, float eps=1e-7) -> Tensor", compliant);
  m.def(
      "_giou_backward(Tensor grad, Tensor boxes1, Tensor boxes2, float eps, bool[2] output_mask)"
      " -> (Tensor, Tensor)",
      compliant);

  m.def("pairwise_giou(Tensor boxes1, Tensor boxes2, float eps=1e-7) -> Tensor", compliant);
  m.def(
      "_pairwise_giou_backward(Tensor grad, Tensor boxes1, Tensor boxes2, float eps, bool[2] output_mask)"
      " -> (Tensor, Tensor)",
      compliant);

  m.def("masked_giou_loss(Tensor pred, Tensor target, Tensor? weight=None, float eps=1e-7) -> Tensor",
        compliant);
  m.def(
      "_masked_giou_loss_forward(Tensor pred, Tensor target, Tensor? weight, float eps)"
      " -> (Tensor loss, Tensor normalizer)",
      compliant);
  m.def(
      "_masked_giou_loss_backward(Tensor grad, Tensor pred, Tensor target, Tensor? weight, Tensor? loss,"
      " Tensor normalizer, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
      compliant);
  m.def(
      "masked_giou_loss_and_grad(Tensor pred, Tensor target, Tensor? weight=None, float eps=1e-7)"
      " -> (Tensor loss, Tensor grad)",
      compliant);

  m.def("jagged_giou_loss(Tensor pred, Tensor targets, Tensor offsets, float eps=1e-7) -> Tensor", compliant);
  m.def(
      "_jagged_giou_loss_forward(Tensor pred, Tensor targets, Tensor offsets, float eps)"
      " -> (Tensor loss, Tensor normalizer)",
      compliant);
  m.def(
      "_jagged_giou_loss_backward(Tensor grad, Tensor pred, Tensor targets, Tensor offsets,"
      " Tensor normalizer, float eps, bool[2] output_mask) -> (Tensor, Tensor)",
      compliant);

  m.def(
      "padded_nms(Tensor boxes, Tensor scores, float iou_threshold, float score_threshold,"
      " SymInt max_candidates, SymInt max_detections, Tensor? categories=None)"
      " -> (Tensor boxes, Tensor scores, Tensor indices, Tensor counts)",
      compliant);
  // The op reads its thresholds on the host, which a CUDA graph cannot capture.
  m.def(
      "padded_nms.tensor_thresholds(Tensor boxes, Tensor scores, Tensor iou_threshold,"
      " Tensor score_threshold, SymInt max_candidates, SymInt max_detections, Tensor? categories=None)"
      " -> (Tensor boxes, Tensor scores, Tensor indices, Tensor counts)",
      {at::Tag::pt2_compliant_tag, at::Tag::cudagraph_unsafe});

  m.def(
      "fit(Tensor[] images, int height, int width, str fit='letterbox', str filter='bilinear',"
      " str order='rgb', int fill=0, float[]? mean=None, float[]? std=None, ScalarType? dtype=None)"
      " -> (Tensor canvases, Tensor geometry)",
      compliant);

  // Composed of torch's ops: without kernels of their own.
  m.def("restore_boxes(Tensor boxes, Tensor geometry) -> Tensor", compliant);
  m.def("restore_points(Tensor points, Tensor geometry) -> Tensor", compliant);
  m.def("geometry_of_windows(Tensor geometry, Tensor windows) -> Tensor", compliant);
}
