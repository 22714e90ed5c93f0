#include "detect_images.h"

#include <lensbox/annotate.h>
#include <lensbox/error.h>
#include <lensbox/image_io.h>
#include <lensbox/torch/boxes_json.h>
#include <lensbox/torch/detect_files.h>

#include <iostream>
#include <variant>

#include "annotation_paths.h"
#include "image_list.h"
#include "json_output.h"
#include "model.h"
#include "standard_streams.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The photograph is read again, at full size and in color: the detector needs less of it.
void draw(const fs::path& photo, lensbox::Orientation orientation,
          const std::vector<lensbox::Detection>& detections, const lensbox::Metadata& metadata,
          const fs::path& output) {
  const lensbox::Image image = lensbox::read_image(photo, orientation);
  std::error_code ignored;  // write_png reports it
  fs::create_directories(output.parent_path(), ignored);
  lensbox::write_png(output, lensbox::annotate(image, detections, metadata.classes, metadata.extras));
}

}  // namespace

ExitCode detect_images(const ModelOptions& model, const DetectOptions& options) {
  const std::vector<ListedImage> images = list_images(options.images, options.recursive, options.annotate);
  std::vector<fs::path> annotated;
  if (!options.annotate.empty()) annotated = annotation_paths(options.annotate, images);
  const LoadedDetector detector = load_detector(model, options);
  const lensbox::Metadata& metadata = detector.artifact.metadata();
  const lensbox::DetectFilesOptions how{
      .reading = detector.reading,
      .score_threshold = detector.score_threshold,
      .iou_threshold = detector.iou_threshold,
      .batch_size = options.batch,
      .decode_threads = options.decode_threads,
  };
  if (options.json_lines) end_on_closed_stdout();

  Json document = {{"images", Json::array()}};
  ExitCode code = ExitCode::kGood;
  const auto report = [&](size_t i, const std::variant<lensbox::FileDetections, lensbox::InputError>& found) {
    Json entry = {{"file", images[i].path.string()}};
    try {
      if (!images[i].fault.empty()) throw lensbox::InputError(images[i].fault);
      if (const auto* const error = std::get_if<lensbox::InputError>(&found)) throw *error;
      const auto& file = std::get<lensbox::FileDetections>(found);
      entry["width"] = file.width;
      entry["height"] = file.height;
      entry["detections"] = lensbox::to_json(file.detections, metadata.classes, metadata.extras);
      if (!annotated.empty()) {
        draw(images[i].path, detector.reading.reading.orientation, file.detections, metadata, annotated[i]);
      }
    } catch (const lensbox::InputError& error) {
      std::cerr << "lensbox_runner: " << error.what() << '\n';
      entry["error"] = error.what();
      code = ExitCode::kInput;
    }
    if (options.json_lines) {
      print_line(entry);
    } else {
      document["images"].push_back(std::move(entry));
    }
  };
  std::vector<fs::path> files;
  for (const ListedImage& image : images) {
    files.push_back(image.path);
  }
  lensbox::detect_files(detector.artifact, files, how, report);
  if (!options.json_lines) print_line(document);
  return code;
}
