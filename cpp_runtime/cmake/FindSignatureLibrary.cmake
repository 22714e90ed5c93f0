# Sets LENSBOX_WITH_SIGNATURES: whether signatures of artifacts can be checked, with libcrypto of OpenSSL (the imported
# target OpenSSL::Crypto). -DLENSBOX_SIGNATURES=ON ends here where it is missing, =OFF builds without, AUTO is the default.
# Without, whoever asks for a check is told so: nothing is loaded unchecked, nor op libraries that artifacts carry, whose
# hashes are computed with it. OPENSSL_ROOT_DIR says where to look first.
set(LENSBOX_SIGNATURES AUTO CACHE STRING "Check signatures of artifacts (needs OpenSSL): AUTO, ON or OFF")
set(LENSBOX_WITH_SIGNATURES OFF)
if(NOT LENSBOX_SIGNATURES STREQUAL "OFF")
  find_package(OpenSSL 1.1.1 COMPONENTS Crypto)
  if(OPENSSL_FOUND)
    set(LENSBOX_WITH_SIGNATURES ON)
  elseif(LENSBOX_SIGNATURES STREQUAL "ON")
    message(FATAL_ERROR
      "OpenSSL was not found. Install it (Debian, Ubuntu: apt-get install libssl-dev), pass -DOPENSSL_ROOT_DIR=<the "
      "folder that has it in include/ and lib/>, or build without signatures: -DLENSBOX_SIGNATURES=OFF.")
  endif()
endif()
message(STATUS "lensbox: signatures: ${LENSBOX_WITH_SIGNATURES} (LENSBOX_SIGNATURES=${LENSBOX_SIGNATURES})")
