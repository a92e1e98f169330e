# SPDX-License-Identifier: Apache-2.0
# A user's project finds the installed package the ways that the README names.
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
set(prefix "${SCRATCH}/installed")
set(build "${SCRATCH}/consumer-build")
file(REMOVE_RECURSE "${prefix}" "${build}" "${SCRATCH}/other-build" "${SCRATCH}/user")

# A shell in which no Python environment is active, nor is one on the path.
set(bare ${CMAKE_COMMAND} -E env --unset=VIRTUAL_ENV --unset=CONDA_PREFIX PATH=/usr/bin:/bin)
set(project -G Ninja -S "${CONSUMER}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_MAKE_PROGRAM=${NINJA}"
            -DCMAKE_BUILD_TYPE=Release "-DWITH_TORCH=${WITH_TORCH}")

step("installing" ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${prefix}")
step("configuring the consumer as the README does" ${bare} ${CMAKE_COMMAND} ${project} -B "${build}"
     "-DCMAKE_PREFIX_PATH=${prefix}")
step("building the consumer" ${CMAKE_COMMAND} --build "${build}")
step("running the consumer" "${build}/consumer")

# Configures anew with what follows and expects the LibTorch that was asked for.
function(expect_torch what)
  file(REMOVE_RECURSE "${SCRATCH}/other-build")
  step("configuring with ${what}" ${ARGN} -B "${SCRATCH}/other-build")
  if(WITH_TORCH)
    file(STRINGS "${SCRATCH}/other-build/CMakeCache.txt" found REGEX "^PLIMSOLL_TORCH_DIR:")
    string(REGEX REPLACE "^[^=]*=" "" found "${found}")
    if(NOT found STREQUAL TORCH_DIR)
      message(FATAL_ERROR "configuring with ${what} took '${found}', not '${TORCH_DIR}'")
    endif()
  endif()
endfunction()

expect_torch("everything named" ${bare} ${CMAKE_COMMAND} ${project} "-DCMAKE_PREFIX_PATH=${prefix}"
             "-DPLIMSOLL_TORCH_DIR=${TORCH_DIR}" "-DPLIMSOLL_HIGHS_LIBRARY=${HIGHS_LIBRARY}"
             "-DPLIMSOLL_HIGHS_INCLUDE_DIR=${HIGHS_INCLUDE_DIR}")
if(NOT WITH_TORCH)
  return()
endif()

# From here on the package has forgotten the LibTorch it was built with.
set(config "${prefix}/${LIBDIR}/cmake/Plimsoll/PlimsollConfig.cmake")
file(READ "${config}" text)
string(REPLACE "BUILT_WITH_TORCH \"${TORCH_DIR}\"" "BUILT_WITH_TORCH \"/nonexistent\"" forgetful "${text}")
if(forgetful STREQUAL text)
  message(FATAL_ERROR "${config} does not name ${TORCH_DIR}")
endif()
file(WRITE "${config}" "${forgetful}")
execute_process(COMMAND ${bare} python3 -c "import torch" RESULT_VARIABLE system_has_no_torch
                OUTPUT_QUIET ERROR_QUIET)
if(system_has_no_torch)
  execute_process(COMMAND ${bare} ${CMAKE_COMMAND} ${project} "-DCMAKE_PREFIX_PATH=${prefix}" -B "${SCRATCH}/other-build" --fresh
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE error)
  if(status EQUAL 0 OR NOT error MATCHES "LibTorch [0-9.]+ not found; set PLIMSOLL_TORCH_DIR")
    message(FATAL_ERROR "without any LibTorch the consumer was configured, or was not told why not:\n${error}")
  endif()
endif()

# In a file, since a list does not pass through a function's arguments.
file(WRITE "${SCRATCH}/prefixes.cmake"
     "set(CMAKE_PREFIX_PATH \"${prefix};${TORCH_DIR}/share/cmake\" CACHE STRING \"\")\n")
expect_torch("torch.utils.cmake_prefix_path" ${bare} ${CMAKE_COMMAND} -C "${SCRATCH}/prefixes.cmake" ${project})

# An environment of the user's with torch in it.
set(environment "${SCRATCH}/user")
step("making a Python environment" python3 -m venv --without-pip "${environment}")
file(GLOB site "${environment}/lib/python3*/site-packages")
file(CREATE_LINK "${TORCH_DIR}" "${site}/torch" SYMBOLIC)
expect_torch("an active Python environment" ${bare} "VIRTUAL_ENV=${environment}" ${CMAKE_COMMAND} ${project}
             "-DCMAKE_PREFIX_PATH=${prefix}")
