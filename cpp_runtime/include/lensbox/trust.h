#pragma once

namespace lensbox {

// A TorchScript file is a program, and some of it runs while the file is loaded. Code that uses an op which a
// detector does not need, such as those that read and write files, is therefore refused before anything of it
// runs. This is no sandbox: what is allowed can still use up time and memory, or make the detector wrong. The
// machine code of an AOTInductor package cannot be checked, so it is always refused.
enum class Trust {
  kCheckCode,  // refuse code that uses ops outside the list in runtime/allowed_ops.txt
  kTrustCode   // load whatever torch loads, and open op libraries that it carries: only for files of your own
};

}  // namespace lensbox
