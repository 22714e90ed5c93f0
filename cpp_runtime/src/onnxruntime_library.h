#pragma once

struct OrtApiBase;

namespace lensbox {

// onnxruntime, whose library is opened when it is first asked for and stays open: the file that the
// environment variable LENSBOX_ONNXRUNTIME names, else the one that the build found, else libonnxruntime.so.1
// where the dynamic linker looks. Throws std::runtime_error where there is none, or one that is older than
// the headers of the build.
//
// (It is not linked: a program with onnxruntime would need its very version to start, even for other files,
// and its interface has a version of its own.)
const OrtApiBase& onnxruntime();

}  // namespace lensbox
