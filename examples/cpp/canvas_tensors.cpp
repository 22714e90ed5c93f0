// canvas_tensors ARTIFACT [DEVICE]: what is found in canvases that already lie on the device, as tensors.

#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <lensbox/torch/artifact.h>
#include <lensbox/torch/device.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: canvas_tensors ARTIFACT [DEVICE]\n";
    return 2;
  }
  try {
    const c10::Device device = lensbox::parse_device(argc == 3 ? argv[2] : "cpu");
    const lensbox::Artifact artifact = lensbox::Artifact::load(argv[1], device);
    const lensbox::Metadata& metadata = artifact.metadata();
    const lensbox::Canvas canvas = metadata.reading.canvas.value();
    const at::Tensor canvases = at::full({2, canvas.channels, canvas.height, canvas.width}, canvas.fill,
                                         at::TensorOptions().dtype(at::kByte).device(device));
    const lensbox::Found found =
        artifact.detect_canvases(canvases, metadata.score_threshold, metadata.iou_threshold);
    std::cout << "boxes " << found.boxes.sizes() << " on " << found.boxes.device() << ", of which count "
              << found.counts.sum().item<int64_t>() << '\n';
    return 0;
  } catch (const lensbox::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {  // of libtorch, as this half passes it on
    std::cerr << error.what() << '\n';
    return 1;
  }
}
