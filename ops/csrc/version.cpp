// What this library was built for, readable in the file itself (strings liblensbox_ops.so | grep
// lensbox-build), because a library built for another torch often cannot be loaded to be asked. lensbox.ops
// reads it.

#ifdef LENSBOX_WITH_CUDA
#define LENSBOX_BACKENDS "cpu,cuda"
#else
#define LENSBOX_BACKENDS "cpu"
#endif

namespace lensbox {

extern const char build_info[];
[[gnu::used]] const char build_info[] =
    "lensbox-build version=" LENSBOX_VERSION " torch=" LENSBOX_TORCH_VERSION " backends=" LENSBOX_BACKENDS
    " " LENSBOX_BUILD;

}  // namespace lensbox
