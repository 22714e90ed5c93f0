// find_objects ARTIFACT IMAGE: print the detections in a JPEG or PNG file.

#include <lensbox/detector.h>

#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: find_objects ARTIFACT IMAGE\n";
    return 2;
  }
  try {
    const lensbox::Detector detector = lensbox::Detector::load(argv[1]);
    const lensbox::Metadata& metadata = detector.metadata();
    for (const lensbox::Detection& detection : detector.detect_file(argv[2]).detections) {
      const auto& [x1, y1, x2, y2] = detection.box;
      const std::string& name =
          metadata.classes.empty() ? metadata.name : metadata.classes[static_cast<size_t>(detection.label)];
      std::cout << name << ' ' << detection.score << ' ' << x1 << ' ' << y1 << ' ' << x2 << ' ' << y2 << '\n';
    }
    return 0;
  } catch (const lensbox::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  }
}
