# lensbox_embed_names(<header> [<constant> <file>]...)
#
# Writes a C++ header that has, for each text file of names, one a line, empty lines and lines that begin with # left
# out, a sorted array of them: inline constexpr std::string_view <constant>[] in the namespace lensbox.
function(lensbox_embed_names header)
  set(text "#pragma once\n\n#include <string_view>\n\nnamespace lensbox {\n\n")
  while(ARGN)
    list(POP_FRONT ARGN constant file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(STRINGS "${file}" names REGEX "^[^#]")
    list(SORT names)
    list(JOIN names "\",\n    \"" names)
    string(APPEND text "inline constexpr std::string_view ${constant}[] = {\n    \"${names}\"};\n\n")
  endwhile()
  string(APPEND text "}  // namespace lensbox\n")
  file(CONFIGURE OUTPUT "${header}" CONTENT "${text}" @ONLY)
endfunction()
