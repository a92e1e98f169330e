# SPDX-License-Identifier: Apache-2.0
# plimsoll_find_highs() makes the imported target plimsoll::highs, or fails with what to do.
#
# Through its C interface only: PyPI's highsbox, which the bootstrap installs, is built with the
# old C++ string ABI. A system's HiGHS serves as well. Looked for in PLIMSOLL_HIGHS_DIR (a folder
# with lib/ and include/), in a wheel's build in its highsbox, then where CMake looks, at last where
# the installed package's own build had it (PLIMSOLL_BUILT_WITH_HIGHS: its folders, library and headers).
function(plimsoll_find_highs)
  if(SKBUILD AND NOT PLIMSOLL_HIGHS_DIR)
    execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import highsbox; print(highsbox.__path__[0])"
                    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(PLIMSOLL_HIGHS_DIR "${folder}/highs_dist")
  endif()
  find_library(PLIMSOLL_HIGHS_LIBRARY highs HINTS "${PLIMSOLL_HIGHS_DIR}"
               PATHS ${PLIMSOLL_BUILT_WITH_HIGHS} PATH_SUFFIXES lib)
  find_path(PLIMSOLL_HIGHS_INCLUDE_DIR interfaces/highs_c_api.h HINTS "${PLIMSOLL_HIGHS_DIR}"
            PATHS ${PLIMSOLL_BUILT_WITH_HIGHS} PATH_SUFFIXES include/highs include)
  if(NOT PLIMSOLL_HIGHS_LIBRARY OR NOT PLIMSOLL_HIGHS_INCLUDE_DIR)
    message(FATAL_ERROR "Plimsoll: HiGHS not found; 'pip install highsbox' and set PLIMSOLL_HIGHS_DIR "
                        "to its highs_dist folder, or run ./dev in Plimsoll's own tree")
  endif()
  if(NOT TARGET plimsoll::highs)
    add_library(plimsoll::highs SHARED IMPORTED GLOBAL)
    set_target_properties(plimsoll::highs PROPERTIES
      IMPORTED_LOCATION "${PLIMSOLL_HIGHS_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${PLIMSOLL_HIGHS_INCLUDE_DIR}")
  endif()
endfunction()
