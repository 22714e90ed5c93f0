// Calls the ops with the same pseudo-random inputs on every machine, and prints a line for each result: the
// call, its dtype and sizes, and a hash of its bytes. test_arm.py compares the lines of two machines.

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

using Arguments = std::vector<c10::IValue>;

std::mt19937 generator(20261129);  // the standard fixes its numbers

int64_t below(int64_t limit) {
  return generator() % limit;
}
float fraction() {
  return static_cast<float>(generator() >> 8) * 0x1p-24F;
}
std::string operator/(const std::string& name, const auto& part) {
  return name + "/" + c10::str(part);
}

uint64_t hash_of(const at::Tensor& values, uint64_t hash) {  // FNV-1a
  const auto* bytes = static_cast<const unsigned char*>(values.const_data_ptr());
  for (size_t i = 0; i < values.nbytes(); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

// A NaN counts by its place. IEEE 754 leaves its sign and its other bits open: x86 and ARM set the sign
// differently.
void print(const std::string& name, const at::Tensor& result) {
  const at::Tensor values = result.detach().contiguous(), is_nan = values.isnan();
  const uint64_t hash = hash_of(is_nan, hash_of(values.masked_fill(is_nan, 0), 0xcbf29ce484222325));
  std::cout << name << ' ' << values.dtype() << values.sizes() << ' ' << std::hex << hash << std::dec << '\n';
}

std::vector<at::Tensor> call(const std::string& op, Arguments stack, const char* overload = "") {
  c10::Dispatcher::singleton().findSchemaOrThrow(("lensbox::" + op).c_str(), overload).callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack)
    results.push_back(value.toTensor());
  return results;
}

void print_call(const std::string& name, const std::string& op, Arguments stack, const char* overload = "") {
  for (const at::Tensor& result : call(op, std::move(stack), overload))
    print(op / name, result);
}

// uint8 [channels, height, width], in planes or with its channels interleaved, of noise or of smooth stripes.
at::Tensor photograph(int64_t channels, int64_t height, int64_t width) {
  at::Tensor pixels = at::empty({height, width, channels}, at::kByte);
  const bool is_smooth = below(2) == 0;
  uint8_t* p = pixels.data_ptr<uint8_t>();
  for (int64_t i = 0; i < pixels.numel(); ++i)
    p[i] = (is_smooth ? i / 3 + below(9) : below(256)) & 255;
  pixels = pixels.permute({2, 0, 1});
  return below(2) == 0 ? pixels : pixels.contiguous();
}

enum Kind {
  kUsual,
  kTied,
  kOdd
};  // kTied: on a grid, with equal areas; kOdd: some with NaN, infinities, without area

at::Tensor boxes(int64_t images, int64_t slots, Kind kind, at::ScalarType dtype) {
  at::Tensor made = at::empty({images, slots, 4});
  float* p = made.data_ptr<float>();
  for (int64_t i = 0; i < images * slots; ++i, p += 4) {
    const float x = 200 * fraction(), y = 200 * fraction(), width = 60 * fraction(), height = 60 * fraction();
    p[0] = x, p[1] = y, p[2] = x + width, p[3] = y + height;
    if (kind == kTied) {
      for (int k = 0; k < 4; ++k)
        p[k] = 8 * std::floor(p[k] / 8);
    } else if (kind == kOdd) {
      switch (below(12)) {
        case 0:
          p[below(4)] = std::numeric_limits<float>::quiet_NaN();
          break;
        case 1:
          p[below(4)] = std::numeric_limits<float>::infinity();
          break;
        case 2:
          std::swap(p[0], p[2]);
          break;
        case 3:
          p[2] = p[0], p[3] = p[1];
          break;
        case 4:
          p[0] = -3e38F, p[2] = p[3] = 3e38F;
          break;
        case 5:
          p[0] = 1e-40F, p[2] = 3e-40F;
          break;
        default:
          break;
      }
    }
  }
  return made.to(dtype);
}

at::Tensor weights(int64_t images, int64_t slots, at::ScalarType dtype) {
  at::Tensor made = at::empty({images, slots});
  for (int64_t i = 0; i < made.numel(); ++i)
    made.data_ptr<float>()[i] = fraction();
  return made.to(dtype);
}

const std::vector<std::string> kFits = {"letterbox", "stretch", "crop", "ultralytics", "ultralytics_shrink"};
const std::vector<std::string> kFilters = {"nearest", "box",     "bilinear",     "hamming",
                                           "bicubic", "lanczos", "opencv_linear"};
const std::vector<std::string> kOrders = {"gray", "rgb", "bgr"};

void print_fits() {
  const c10::IValue none;
  c10::List<at::Tensor> photographs;
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 97}, {33, 1}, {64, 64}, {37, 211}, {240, 320}, {333, 127}, {512, 700}}) {
    for (const int64_t channels : {1, 3, 4})
      photographs.push_back(photograph(channels, height, width));
  }
  const Arguments floats = {c10::List<double>({0.485, 0.456, 0.406}),
                            c10::List<double>({0.229, 0.224, 0.225})};
  for (const std::string& filter : kFilters) {
    for (const std::string& fit : kFits) {
      for (const std::string& order : kOrders) {
        for (const auto& [height, width] :
             std::vector<std::pair<int64_t, int64_t>>{{64, 64}, {31, 173}, {1, 5}}) {
          print_call(filter / fit / order / height / width, "fit",
                     {photographs, height, width, fit, filter, order, 114, none, none, none});
        }
      }
    }
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      print_call(filter / dtype, "fit",
                 {photographs, 96, 128, "letterbox", filter, "rgb", 114, floats[0], floats[1],
                  static_cast<int64_t>(dtype)});
    }
  }
  // 400 sizes as OpenCV and ultralytics fit them. (Compilers differ in the order of arguments: a line for
  // each number.)
  for (int64_t i = 0; i < 400; ++i) {
    const int64_t height = 1 + below(300), width = 1 + below(300), rows = 1 + below(400),
                  columns = 1 + below(400);
    const at::Tensor one = photograph(i % 3 == 0 ? 1 : 3, rows, columns);
    for (const std::string& fit : kFits) {
      for (const std::string& order : kOrders) {
        print_call("opencv_linear" / fit / order / i, "fit",
                   {c10::List<at::Tensor>({one}), height, width, fit, "opencv_linear", order, 114, none, none,
                    none});
      }
    }
  }
}

void print_suppression(at::ScalarType dtype, Kind kind) {
  for (const int64_t slots : {1, 17, 300, 2100}) {
    for (const double iou : {0.0, 0.3, 0.5, 0.75}) {
      const int64_t images = slots > 1000 ? 1 : 3;
      const at::Tensor candidates = boxes(images, slots, kind, dtype),
                       categories = at::empty({images, slots}, at::kLong);
      at::Tensor scores = weights(images, slots, at::kFloat);
      if (kind == kTied) scores = (scores * 32).floor() / 32;
      for (int64_t i = 0; i < images * slots; ++i)
        categories.data_ptr<int64_t>()[i] = below(3);
      for (const c10::IValue& kinds : {c10::IValue(), c10::IValue(categories)}) {
        const std::string name = std::string(c10::toString(dtype)) / int(kind) / slots / iou / kinds.isNone();
        print_call(name, "padded_nms", {candidates, scores.to(dtype), iou, 0.1, 1000, 100, kinds});
        print_call(name, "padded_nms",
                   {candidates, scores.to(dtype), at::scalar_tensor(iou, at::kDouble),
                    at::scalar_tensor(0.1, at::kDouble), 1000, 100, kinds},
                   "tensor_thresholds");
      }
    }
  }
}

void print_losses(at::ScalarType dtype, Kind kind) {
  constexpr double kEps = 1e-7;
  for (const int64_t slots : {1, 7, 64, 333}) {
    const std::string name = std::string(c10::toString(dtype)) / int(kind) / slots;
    const at::Tensor predicted = boxes(4, slots, kind, dtype), target = boxes(4, slots, kind, dtype);
    const at::Tensor weight = weights(4, slots, dtype);
    print_call(name, "masked_giou_loss_and_grad", {predicted, target, c10::IValue(), kEps});
    print_call(name / "weight", "masked_giou_loss_and_grad", {predicted, target, weight, kEps});
    const at::Tensor packed = target.reshape({-1, 4}).slice(0, 0, slots).contiguous();
    const at::Tensor offsets = at::tensor({int64_t{0}, slots / 3, slots / 2, slots, slots});
    const std::vector<std::pair<std::string, Arguments>> losses = {
        {"giou", {target, kEps}},
        {"pairwise_giou", {target, kEps}},
        {"masked_giou_loss", {target, weight, kEps}},
        {"jagged_giou_loss", {packed, offsets, kEps}}};
    for (const auto& [op, others] : losses) {
      const at::Tensor leaf = predicted.detach().clone().set_requires_grad(true);
      Arguments arguments = {leaf};
      arguments.insert(arguments.end(), others.begin(), others.end());
      const at::Tensor loss = call(op, arguments).at(0);
      print(op / name, loss);
      print(op / name / "gradient", torch::autograd::grad({loss.sum()}, {leaf}).at(0));
    }
  }
}

}  // namespace

int main() {
  print_fits();
  for (const Kind kind : {kUsual, kTied, kOdd}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      print_suppression(dtype, kind);
      print_losses(dtype, kind);
    }
  }
}
