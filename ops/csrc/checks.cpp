#include "checks.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include "slots.h"

namespace lensbox {

using at::ScalarType;

bool is_box_dtype(ScalarType dtype) {
  return dtype != ScalarType::Bool && kernel_dtype(dtype).has_value();
}

void check_box_dtype(const char* op, const char* name, const Tensor& boxes) {
  TORCH_CHECK_TYPE(is_box_dtype(boxes.scalar_type()), op, ": ", name,
                   " must be float64, float32, float16, bfloat16, uint8, int16, int32 or int64, got ",
                   boxes.scalar_type());
}

void check_floating_dtype(const char* op, const char* name, const Tensor& tensor) {
  TORCH_CHECK_TYPE(at::isFloatingType(tensor.scalar_type()) && is_box_dtype(tensor.scalar_type()), op, ": ",
                   name, " must be float64, float32, float16 or bfloat16, got ", tensor.scalar_type());
}

void check_last_dimension(const char* op, const char* name, const Tensor& boxes) {
  TORCH_CHECK(boxes.dim() >= 1 && boxes.sym_size(-1) == 4, op, ": ", name,
              " must have shape [..., 4] (xyxy), got ", boxes.sym_sizes());
}

void check_same_device(const char* op, const char* name, const Tensor& tensor, const char* other_name,
                       const Tensor& other) {
  TORCH_CHECK(tensor.device() == other.device(), op, ": ", name, " must be on the device of ", other_name,
              " (", other.device(), "), got ", tensor.device());
}

void check_eps(const char* op, double eps) {
  TORCH_CHECK_VALUE(eps >= 1e-18 && eps <= 1e18, op, ": eps must be between 1e-18 and 1e18, got ", eps);
}

Tensor plain_memory(const Tensor& tensor) {
  // A view may negate its numbers while they are read, and torch has zeros without memory.
  const Tensor numbers = tensor.is_neg() || tensor._is_zerotensor() ? tensor.clone() : tensor;
  return numbers.contiguous();
}

const uint8_t* bytes_of_file(const Tensor& file) {
  TORCH_CHECK_VALUE(file.is_cpu() && file.scalar_type() == at::kByte && file.dim() == 1 &&
                        file.is_contiguous() && !file.is_neg() && !file._is_zerotensor(),
                    "a file must be contiguous uint8 [N] on the CPU, got ", file.toString(), " ",
                    file.sizes());
  return file.const_data_ptr<uint8_t>();
}

void check_grad(const char* op, const Tensor& grad, ScalarType dtype, c10::SymIntArrayRef shape,
                const char* input_name, const Tensor& input) {
  TORCH_CHECK_TYPE(grad.scalar_type() == dtype, op, ": grad must have the dtype of the output (", dtype,
                   "), got ", grad.scalar_type());
  TORCH_CHECK(grad.sym_sizes() == shape, op, ": grad must have the shape of the output (", shape, "), got ",
              grad.sym_sizes());
  check_same_device(op, "grad", grad, input_name, input);
}

Tensor gradient_of(const char* op, int position, const char* name, const Tensor& input,
                   c10::SymIntArrayRef shape, bool wanted) {
  if (!wanted) return at::empty({0}, input.options());
  TORCH_CHECK_TYPE(at::isFloatingType(input.scalar_type()), op, ": output_mask[", position,
                   "] must be False where ", name, " holds integers, which have no gradient, got True for ",
                   input.scalar_type());
  return at::empty_symint(shape, input.options());
}

ScalarType math_dtype(const Tensor& a, const Tensor& b, const std::optional<Tensor>& weight) {
  const auto is_double = [](const Tensor& tensor) { return tensor.scalar_type() == ScalarType::Double; };
  return is_double(a) || is_double(b) || (weight.has_value() && is_double(*weight)) ? ScalarType::Double
                                                                                    : ScalarType::Float;
}

}  // namespace lensbox
