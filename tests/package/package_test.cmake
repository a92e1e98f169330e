# SPDX-License-Identifier: Apache-2.0
set(prefix "${SCRATCH}/installed")
set(build "${SCRATCH}/consumer-build")
file(REMOVE_RECURSE "${prefix}" "${build}")

function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed:\n${output}")
  endif()
endfunction()

step("installing" ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${prefix}")
step("configuring the consumer" ${CMAKE_COMMAND} -G Ninja -S "${CONSUMER}" -B "${build}"
     "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" -DCMAKE_BUILD_TYPE=Release
     "-DPLIMSOLL_TORCH_DIR=${TORCH_DIR}" "-DPLIMSOLL_HIGHS_LIBRARY=${HIGHS_LIBRARY}"
     "-DPLIMSOLL_HIGHS_INCLUDE_DIR=${HIGHS_INCLUDE_DIR}" "-DWITH_TORCH=${WITH_TORCH}")
step("building the consumer" ${CMAKE_COMMAND} --build "${build}")
step("running the consumer" "${build}/consumer")
