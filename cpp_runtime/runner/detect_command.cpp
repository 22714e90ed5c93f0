#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "commands.h"
#include "detections_json.h"
#include "frames.h"
#include "streams.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A file that --image names, itself or by its folder.
struct ListedImage {
  std::filesystem::path path;
  std::string fault;  // why it cannot be read, if that is known; else empty
};

constexpr std::array<std::string_view, 3> kEndings{".jpg", ".jpeg", ".png"};

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return !is_hidden(path) && std::ranges::find(kEndings, ending) != kEndings.end();
}

void add_folder(const fs::path& folder, bool recursive, std::vector<ListedImage>& images) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code ignored;  // an entry without access is no folder; reading it reports the error
    if (entry->is_directory(ignored)) {
      if (recursive && !entry->is_symlink(ignored) && !is_hidden(path)) add_folder(path, recursive, images);
    } else if (is_image_name(path)) {
      images.push_back({path, ""});
    }
  }
  if (error) {
    images.push_back({folder, "folder " + folder.string() + ": cannot be read: " + error.message()});
  }
}

// Return the files that `arguments` name, in order. A file stands for itself. A folder stands for its image
// files in the order of their names, and with `recursive` also for the image files in folders below. The name
// of an image file ends with .jpg, .jpeg or .png, in small or capital letters, and does not begin with a dot.
// Folders below that are links, or whose names begin with a dot, are skipped. A folder that is unreadable or
// has no image files is in the list with its fault.
std::vector<ListedImage> list_images(const std::vector<fs::path>& arguments, bool recursive) {
  std::vector<ListedImage> images;
  for (const fs::path& argument : arguments) {
    std::error_code error;
    if (!fs::is_directory(argument, error)) {
      images.push_back({argument, ""});
      continue;
    }
    std::vector<ListedImage> found;
    add_folder(argument, recursive, found);
    std::ranges::sort(found, {}, &ListedImage::path);
    if (found.empty()) {
      found.push_back({argument, "folder " + argument.string() +
                                     ": no file in it ends with .jpg, .jpeg or .png" +
                                     (recursive ? "" : " (--recursive also looks into the folders in it)")});
    }
    std::ranges::move(found, std::back_inserter(images));
  }
  return images;
}

lensbox::Detector load(const ModelOptions& model, const DetectOptions& options) {
  lensbox::Detector detector = lensbox::Detector::load(model.artifact, model.load);
  if (options.capture) {
    const auto batch = static_cast<int64_t>(options.files.batch_size);
    detector.capture({&batch, 1}, options.files.thresholds);
  }
  return detector;
}

Outcome detect_images(const ModelOptions& model, const DetectOptions& options) {
  const std::vector<ListedImage> images = list_images(options.images, options.recursive);
  const lensbox::Detector detector = load(model, options);
  if (options.json_lines) end_on_closed_stdout();

  Json document = {{"images", Json::array()}};
  Outcome outcome_of_all;
  const auto report = [&](size_t i, const lensbox::FileOutcome& outcome) {
    Json entry = {{"file", images[i].path.string()}};
    const auto* const error = std::get_if<lensbox::InputError>(&outcome);
    if (error != nullptr) {
      const std::string reason = images[i].fault.empty() ? error->what() : images[i].fault;
      std::cerr << "lensbox_runner: " << reason << '\n';
      entry["error"] = reason;
      outcome_of_all = lensbox::ErrorCode::kInput;
    } else {
      const auto& file = std::get<lensbox::FileDetections>(outcome);
      entry["width"] = file.width;
      entry["height"] = file.height;
      entry["detections"] = to_json(file.detections, detector.metadata());
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
  detector.detect_files(files, options.files, report);
  if (!options.json_lines) print_line(document);
  return outcome_of_all;
}

// Detect in frame after frame, and print a line for each.
void detect_stream(const lensbox::Detector& detector, RawFrames& frames, const DetectOptions& options) {
  int64_t reported = 0;
  std::vector<std::vector<uint8_t>> batch(options.files.batch_size);
  std::vector<lensbox::ImageView> views;
  do {
    views.clear();
    while (views.size() < batch.size() && frames.read(batch[views.size()])) {
      views.push_back(frames.format().view(batch[views.size()].data()));
    }
    const auto found = detector.detect(views, options.files.thresholds);
    for (size_t i = 0; i < views.size(); ++i) {
      print_line({{"frame", reported++},
                  {"width", views[i].width},
                  {"height", views[i].height},
                  {"detections", to_json(found[i], detector.metadata())}});
    }
  } while (views.size() == batch.size());
  frames.check_end();
}

}  // namespace

Outcome run_detect(const ModelOptions& model, const DetectOptions& options) {
  if (options.images.empty() != options.raw.has_value()) {
    throw UsageError(std::string("detect needs one of --image and --raw, got ") +
                     (options.raw ? "both" : "none"));
  }
  if (!options.images.empty()) return detect_images(model, options);

  const int stop = request_end_on_signals();
  end_on_closed_stdout();
  const lensbox::Detector detector = load(model, options);
  RawFrames frames(STDIN_FILENO, STDOUT_FILENO, *options.raw, stop);
  detect_stream(detector, frames, options);
  return std::nullopt;
}
