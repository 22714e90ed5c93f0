#pragma once

#include <lensbox/api.h>
#include <lensbox/detection.h>
#include <lensbox/error.h>
#include <lensbox/image_view.h>
#include <lensbox/metadata.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace lensbox {

// Options of Detector::load.
struct LoadOptions {
  // "cpu", "cuda" (the first GPU), "cuda:N", or "auto" (the first GPU if there is one, else the CPU).
  std::string device = "cpu";
  // Shared libraries whose ops register themselves with torch, opened before the artifact. Opening a library
  // runs its code. If none of them is Lensbox's own op library, that one is opened, too: the file in the
  // environment variable LENSBOX_OPS_LIBRARY, else liblensbox_ops.so beside the program, in ../lib of it, or
  // beside this library. The libraries stay open for the life of the process.
  std::vector<std::filesystem::path> op_libraries = {};
  // A PEM file with an Ed25519 public key. If given, the artifact must be signed by its owner, in
  // <artifact>.sig; otherwise it is refused before anything of it is parsed.
  std::optional<std::filesystem::path> public_key = std::nullopt;
  // The signature of an artifact in memory, for a public key: the 64 bytes of its .sig file.
  std::vector<uint8_t> signature = {};
  // CPU threads of each call, from 1 to 1024; 0: as many as libtorch has in the calling thread. Of an ONNX
  // file: the threads that all calls share; in a library without libtorch, 0 takes OMP_NUM_THREADS, else one
  // for each processor.
  int threads = 0;
  // On a GPU, a cudaStream_t that every call uses; nullptr: libtorch's current stream of the calling thread.
  void* stream = nullptr;
};

// Thresholds of detect, from 0 to 1; by default the artifact's.
struct Thresholds {
  std::optional<double> score = std::nullopt;  // detections with lower scores are left out
  std::optional<double> iou = std::nullopt;    // NMS drops the worse of two boxes beyond this overlap
};

struct Loss {
  double value = 0;
  int64_t slots = 0;  // number of target slots that are not padding (y2 != 0)
};

// Differences between computed results and the results stored in the artifact; docs/artifact.md, "The
// self-test", has the rule. The errors are the largest absolute differences of matched detections.
struct SelfTestReport {
  std::vector<std::string> failures = {};  // empty: passed
  double max_box_error = 0;                // pixels
  double max_score_error = 0;
  double loss_error = 0;
  size_t unmatched_by_rounding = 0;  // detections

  bool passed() const { return failures.empty(); }
};

// Detect small objects in overlapping tiles of a large photograph. docs/tiles.md has the rule of all
// runtimes.
struct TileSpec {
  // The longer side of a tile in pixels; none: the longer side of the canvas, so no pixel is scaled.
  std::optional<int64_t> size = std::nullopt;
  double overlap = 0.25;  // overlap of neighbouring tiles, as a share of a tile's side: from 0 to less than 1
  bool whole = true;      // also detect in the whole photograph
};

// The decoder of JPEG files. kAuto: the GPU in batches of 16 or more, if it decodes to the same pixels; kGpu:
// the GPU in every batch. The CPU decodes files that the GPU does not take.
enum class Decode { kAuto, kCpu, kGpu };

// Options of Detector::detect_files.
struct FilesOptions {
  Thresholds thresholds = {};
  std::optional<Orientation> orientation = std::nullopt;  // by default the artifact's
  std::optional<TileSpec> tiles = std::nullopt;           // files are then decoded at full size
  size_t batch_size = 1;                                  // photographs per call of the detector, at least 1
  size_t decode_threads = 1;  // threads that read files beside the detector, at least 1
  Decode decode = Decode::kCpu;
};

// The result for one file: detections, or why the file cannot be read.
using FileOutcome = std::variant<FileDetections, InputError>;

// Check an artifact and return its lensbox.json without running its code. This needs neither an op library
// nor onnxruntime. Throws ArtifactError if the file is absent, no artifact, damaged, or not signed by the
// owner of `public_key`.
LENSBOX_API Metadata read_metadata(const std::filesystem::path& artifact,
                                   const std::optional<std::filesystem::path>& public_key = std::nullopt);

// A detector loaded from an artifact. This header and those that it includes need no header of libtorch;
// <lensbox/torch/tensors.h> has functions that take and give tensors.
//
//   const lensbox::Detector detector = lensbox::Detector::load("detector.pt");
//   const lensbox::ImageView frame{bytes, 1920, 1080, 5760, lensbox::PixelFormat::kRgb8};
//   for (const lensbox::Detection& detection : detector.detect(frame)) ...
//
// Const methods are thread-safe. On the CPU each call computes in LoadOptions::threads threads of libtorch
// (OpenMP); 1 is best if several threads detect. The calls of a detector from an ONNX file share the threads
// of onnxruntime. With one such thread, each call computes in its own thread. In a forked child of a process
// that has detected with several threads, methods throw Error. The end of the program waits for calls that
// run in other threads.
//
// Every method throws lensbox::Error and nothing else: ArtifactError if a method of the artifact fails or
// returns a wrong result, InputError for bad arguments, and Error with kInternal for anything else, such as a
// lack of memory.
class LENSBOX_API Detector {
 public:
  // Read the file once, check seal and signature, open the op libraries, and load the checked bytes.
  // TorchScript files and AOTInductor packages are code: loading one runs it, with all rights of the process.
  // ONNX files and exported programs are data. A library without libtorch loads ONNX files only, and opens no
  // op library. Throws ArtifactError, DeviceError, InputError for options.threads.
  //
  // On a GPU, the detector computes without TF32, or with TF32 if the artifact says so. libtorch has one
  // switch for the process: each call sets it, and sets it back. While a call is being launched, calls of
  // detectors of the other kind wait, and other work that the process gives to libtorch sees the switch.
  static Detector load(const std::filesystem::path& artifact, const LoadOptions& options = {});

  // Load the content of an artifact file, which is copied.
  static Detector load(std::span<const uint8_t> artifact, const LoadOptions& options = {});

  // A detector that was moved from may only be destroyed or assigned to. The destructor waits for the work
  // that the detector gave to a GPU, on any stream.
  Detector(Detector&& other) noexcept;
  Detector& operator=(Detector&& other) noexcept;
  ~Detector();

  const Metadata& metadata() const;

  // Return the device on which the detector computes: "cpu", or "cuda:N".
  std::string device() const;

  // Detect in an image of any size: best first, in pixels of the image. Throws InputError for a view that
  // breaks the rules of ImageView or has more than 2^26 pixels, and for thresholds and tiles out of their
  // range.
  std::vector<Detection> detect(const ImageView& image, const Thresholds& thresholds = {},
                                const std::optional<TileSpec>& tiles = std::nullopt) const;

  // Detect in several images of any sizes, in one batch.
  std::vector<std::vector<Detection>> detect(std::span<const ImageView> images,
                                             const Thresholds& thresholds = {}) const;

  // Detect in a JPEG or PNG file, read as metadata().reading says. Throws InputError, also if the file is
  // absent or damaged.
  FileDetections detect_file(const std::filesystem::path& file, const Thresholds& thresholds = {}) const;

  // Detect in a JPEG or PNG file in memory.
  FileDetections detect_file(std::span<const uint8_t> file, const Thresholds& thresholds = {}) const;

  // Detect in many files, read in threads beside the detector. Calls `report` for each file, in order and in
  // the calling thread, with the file's index and its outcome. A batch is `batch_size` files, less those that
  // cannot be read. Up to 3 * batch_size + max(batch_size, decode_threads) photographs are in memory at a
  // time, and two batches more if the GPU decodes. For tiles the CPU decodes. Throws InputError if an option
  // is out of its range, DeviceError if the GPU must decode but cannot. Exceptions of `report` pass through.
  void detect_files(std::span<const std::filesystem::path> files, const FilesOptions& options,
                    const std::function<void(size_t, const FileOutcome&)>& report) const;

  // Compute the artifact's loss of predictions against the same number of targets, in pixels. Throws
  // InputError if the numbers differ.
  Loss loss(std::span<const Box> predictions, std::span<const Box> targets) const;

  // Run the artifact's self-test and compare.
  SelfTestReport self_test() const;

  // On a GPU, record a CUDA graph of detect for each of these batch sizes and for these thresholds: a replay
  // costs one launch in place of hundreds, with the same answers. A batch is filled up to the next size;
  // larger batches and other thresholds run as before. On the CPU this changes nothing. Graphs of an earlier
  // call are dropped. Throws InputError for a size below 1, DeviceError if the library was built without
  // CUDA's headers. No other thread may use the detector meanwhile.
  void capture(std::span<const int64_t> batch_sizes, const Thresholds& thresholds = {});

  // The internals, for the functions of <lensbox/torch/tensors.h>.
  struct Parts;
  const Parts& parts() const { return *parts_; }

 private:
  explicit Detector(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace lensbox
