// What these bindings were built for, readable in the file itself (strings liblensbox_ops.so | grep
// lensbox-build), because a library built for another torch often cannot be loaded to be asked. lensbox.ops
// reads it.

namespace lensbox {

extern const char build_info[];
[[gnu::used]] const char build_info[] = LENSBOX_BUILD_RECORD;

}  // namespace lensbox
