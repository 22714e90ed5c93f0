// canvas_tensors ARTIFACT [DEVICE]: detect in canvases on the device; the results are tensors.

#include <ATen/ATen.h>
#include <lensbox/torch/tensors.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: canvas_tensors ARTIFACT [DEVICE]\n";
    return 2;
  }
  try {
    const lensbox::Detector detector =
        lensbox::Detector::load(argv[1], {.device = argc == 3 ? argv[2] : "cpu"});
    const lensbox::Canvas& canvas = detector.metadata().reading.canvas;
    const auto options = at::TensorOptions().dtype(at::kByte).device(device_of(detector));
    const at::Tensor canvases =
        at::full({2, canvas.channels, canvas.height, canvas.width}, canvas.fill, options);
    const lensbox::Found found = detect_canvases(detector, canvases);
    std::cout << "boxes " << found.boxes.sizes() << " on " << found.boxes.device() << ", of which count "
              << found.counts.sum().item<int64_t>() << '\n';
    return 0;
  } catch (const lensbox::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {  // thrown by libtorch
    std::cerr << error.what() << '\n';
    return 1;
  }
}
