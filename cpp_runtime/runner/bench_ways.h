#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model.h"

// A way to do the same work, for `batch` images.
struct BenchWay {
  std::string name;
  std::function<void()> call;  // may return before the device is done
};

// What `bench` times, in order; they share their input, the picture of the self-test as canvases:
//   whole   Artifact::detect: canvas-sized images in the CPU's memory become detections
//   detect  Artifact::detect_canvases: canvases on the device become boxes on the device
//   module  the artifact's method detect called through torch alone, with torch's own settings but for the
//           artifact's precision on GPUs, which then holds for the process; of a package its bare code,
//           of an ONNX file a session of onnxruntime
// Throws ArtifactError if the artifact does not say what canvas it has.
std::vector<BenchWay> bench_ways(const LoadedDetector& detector, const ModelOptions& model, int64_t batch);
