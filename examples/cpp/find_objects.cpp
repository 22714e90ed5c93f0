// find_objects ARTIFACT IMAGE [DRAWING.png]: prints what is found in a JPEG or PNG file, and draws it.

#include <lensbox/annotate.h>
#include <lensbox/detector.h>
#include <lensbox/image_io.h>

#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::cerr << "usage: find_objects ARTIFACT IMAGE [DRAWING.png]\n";
    return 2;
  }
  try {
    const lensbox::Detector detector = lensbox::Detector::load(argv[1]);
    const lensbox::DetectorMetadata& metadata = detector.metadata();
    const lensbox::FileDetections found = detector.detect_file(argv[2]);
    for (const lensbox::Detection& detection : found.detections) {
      const auto& [x1, y1, x2, y2] = detection.box;
      const std::string& name =
          metadata.classes.empty() ? metadata.name : metadata.classes[static_cast<size_t>(detection.label)];
      std::cout << name << ' ' << detection.score << ' ' << x1 << ' ' << y1 << ' ' << x2 << ' ' << y2 << '\n';
    }
    if (argc == 4) {
      const lensbox::Image photo = lensbox::read_image(argv[2], metadata.reading.orientation);
      lensbox::write_png(argv[3],
                         lensbox::annotate(photo, found.detections, metadata.classes, metadata.extras));
    }
    return 0;
  } catch (const lensbox::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  }
}
