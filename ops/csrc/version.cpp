// The build record of the bindings. lensbox.ops reads it from the file (strings liblensbox_ops.so | grep
// lensbox-build), because a library built for another torch often cannot be loaded.

namespace lensbox {

extern const char build_info[];
[[gnu::used]] const char build_info[] = LENSBOX_BUILD_RECORD;

}  // namespace lensbox
