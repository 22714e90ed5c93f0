#pragma once

#include <lensbox/detection.h>
#include <lensbox/reading.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lensbox {

// What an artifact says about itself. docs/artifact.md has all of it.
struct DetectorMetadata {
  std::string name;
  int64_t format_version;
  std::string lensbox_version;       // of the Lensbox that wrote the artifact
  std::string torch_version;         // of its torch
  std::optional<Canvas> canvas;      // what the detector looks at; not known of an artifact of format 1
  Reading reading;                   // how photographs are read for it
  std::vector<std::string> classes;  // names by label; empty where there is one kind and no labels
  std::vector<Extra> extras;         // what Detection::extras holds, in its order
  double score_threshold;            // the defaults of detect
  double iou_threshold;
  std::string json;  // the whole text, as UTF-8, on one line
};

}  // namespace lensbox
