# SPDX-License-Identifier: Apache-2.0
# For a wheel's build: the libraries of headers that everything is written with. From the system
# where they are installed; else Debian's packages of them are unpacked into the build folder, which
# needs no root. A wheel links none of them, so it runs where only their headers were found.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(wheel_headers CLI/CLI.hpp fmt/format.h nlohmann/json.hpp protozero/pbf_reader.hpp spdlog/spdlog.h zlib.h)
option(PLIMSOLL_UNPACK_HEADERS "Unpack the headers' packages even where they are installed" OFF)
foreach(header ${wheel_headers})
  find_path(found_header ${header} NO_CACHE)
  if(NOT found_header)
    set(PLIMSOLL_UNPACK_HEADERS ON)
  endif()
  unset(found_header)
endforeach()
if(PLIMSOLL_UNPACK_HEADERS)
  set(folder "${PROJECT_BINARY_DIR}/headers")
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/docker/bootstrap.py" --headers "${folder}"
                  RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "Plimsoll: the build needs the headers ${wheel_headers}; install the packages that "
                        "hold them (Debian: libcli11-dev libfmt-dev nlohmann-json3-dev libprotozero-dev "
                        "libspdlog-dev zlib1g-dev) and install plimsoll again")
  endif()
  list(PREPEND CMAKE_PREFIX_PATH "${folder}/usr")
  set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
  include_directories(SYSTEM "${folder}/usr/include/x86_64-linux-gnu")  # zlib's own configuration
endif()

foreach(name nlohmann_json spdlog)
  add_library(${name}_headers INTERFACE)
  add_library(${name}::${name} ALIAS ${name}_headers)
  install(TARGETS ${name}_headers EXPORT plimsoll-targets)
endforeach()
find_path(PLIMSOLL_JSON_HEADERS nlohmann/json.hpp REQUIRED)
find_path(PLIMSOLL_SPDLOG_HEADERS spdlog/spdlog.h REQUIRED)
target_include_directories(nlohmann_json_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${PLIMSOLL_JSON_HEADERS}>)
target_include_directories(spdlog_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${PLIMSOLL_SPDLOG_HEADERS}>)
target_compile_definitions(spdlog_headers INTERFACE FMT_HEADER_ONLY=1 SPDLOG_FMT_EXTERNAL=1)
set(ZLIB_USE_STATIC_LIBS ON)
