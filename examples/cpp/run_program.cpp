// run_program PROGRAM [DEVICE]: run a network that torch.export.save wrote, on one picture of noise.

#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <lensbox/torch/program.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: run_program PROGRAM [DEVICE]\n";
    return 2;
  }
  try {
    const std::string device = argc == 3 ? argv[2] : "cpu";
    const lensbox::Program program = lensbox::Program::load(argv[1], {.device = device});
    const at::Tensor image = at::rand({1, 3, 224, 224}).to(c10::Device(device));
    for (const at::Tensor& output : program.run({image})) {
      std::cout << output.toString() << ' ' << output.sizes() << ", the largest is number "
                << output.argmax().item<int64_t>() << '\n';
    }
    return 0;
  } catch (const lensbox::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {  // thrown by libtorch
    std::cerr << error.what() << '\n';
    return 1;
  }
}
