# SPDX-License-Identifier: Apache-2.0
# For a wheel's build on a machine that lacks some of the libraries of headers that everything is
# written with: Debian's packages of them are unpacked into the build folder, which needs no root.
# Taken as headers only, since libraries of theirs are not there when the wheel runs.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
option(PLIMSOLL_UNPACK_HEADERS "Unpack the headers' packages even where they are installed" OFF)
set(is_unpacking ${PLIMSOLL_UNPACK_HEADERS})
foreach(header CLI/CLI.hpp fmt/format.h nlohmann/json.hpp protozero/pbf_reader.hpp spdlog/spdlog.h zlib.h)
  find_path(found_header ${header} NO_CACHE)
  if(NOT found_header)
    message(STATUS "Plimsoll: ${header} is not installed")
    set(is_unpacking ON)
  endif()
  unset(found_header)
endforeach()
if(NOT is_unpacking)
  return()
endif()

set(folder "${PROJECT_BINARY_DIR}/headers")
execute_process(COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/docker/bootstrap.py" --headers "${folder}"
                RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "Plimsoll: install the packages that hold the headers missing above (Debian: libcli11-dev "
                      "libfmt-dev nlohmann-json3-dev libprotozero-dev libspdlog-dev zlib1g-dev), then install "
                      "plimsoll again")
endif()
list(PREPEND CMAKE_PREFIX_PATH "${folder}/usr")
include_directories(SYSTEM "${folder}/usr/include/x86_64-linux-gnu")  # zlib's own configuration
find_library(ZLIB_LIBRARY libz.a REQUIRED HINTS "${folder}/usr/lib/x86_64-linux-gnu")
foreach(name nlohmann_json spdlog)
  add_library(${name}_headers INTERFACE)
  add_library(${name}::${name} ALIAS ${name}_headers)
  target_include_directories(${name}_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${folder}/usr/include>)
  install(TARGETS ${name}_headers EXPORT plimsoll-targets)
endforeach()
target_compile_definitions(spdlog_headers INTERFACE FMT_HEADER_ONLY=1 SPDLOG_FMT_EXTERNAL=1)
