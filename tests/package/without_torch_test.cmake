# SPDX-License-Identifier: Apache-2.0
# Builds the tree without LibTorch in TREE, which stays for the next time: the program, one of its tests, and a user's project.
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
set(prefix "${SCRATCH}/installed")
set(build "${SCRATCH}/consumer-build")
file(REMOVE_RECURSE "${prefix}" "${build}")
file(MAKE_DIRECTORY "${SCRATCH}")

set(compiler "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_MAKE_PROGRAM=${NINJA}")
step("configuring" ${CMAKE_COMMAND} -G Ninja -S "${SOURCE}" -B "${TREE}" ${compiler} "-DCMAKE_C_COMPILER=${CC}"
     "-DCMAKE_BUILD_TYPE=${TYPE}" "-DCMAKE_CXX_FLAGS=${FLAGS}" "-DCMAKE_CXX_FLAGS_${UPPER_TYPE}=${TYPE_FLAGS}"
     "-DPLIMSOLL_DEV=${DEV}" "-DPLIMSOLL_SANITIZE=${SANITIZE}" "-DPLIMSOLL_HIGHS_LIBRARY=${HIGHS_LIBRARY}"
     "-DPLIMSOLL_HIGHS_INCLUDE_DIR=${HIGHS_INCLUDE_DIR}" -DPLIMSOLL_WITH_TORCH=OFF -DPLIMSOLL_BUILD_TESTS=ON
     -DPLIMSOLL_BUILD_BENCH=OFF)
step("building" ${CMAKE_COMMAND} --build "${TREE}" -j 2 --target plimsoll cli_without_torch_test)
step("running a test" "${TREE}/tests/cli/cli_without_torch_test")

set(program "${TREE}/bindings/cli/plimsoll")
foreach(command train models)
  execute_process(COMMAND "${program}" ${command} mlp --batch 4 RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE error)
  if(NOT status EQUAL 2 OR output OR NOT error MATCHES "^plimsoll ${command}: [^\n]*without LibTorch[^\n]*\n$")
    message(FATAL_ERROR "plimsoll ${command} ended with ${status}:\n${output}\n${error}")
  endif()
endforeach()
step("plimsoll doctor" "${program}" doctor --json "${SCRATCH}/doctor.json")
file(READ "${SCRATCH}/doctor.json" doctor)
string(JSON libtorch GET "${doctor}" libtorch)
if(NOT libtorch STREQUAL "none")
  message(FATAL_ERROR "plimsoll doctor names a LibTorch: ${libtorch}")
endif()

step("installing" ${CMAKE_COMMAND} --install "${TREE}" --prefix "${prefix}")
step("configuring the consumer" ${CMAKE_COMMAND} -G Ninja -S "${CONSUMER}" -B "${build}" ${compiler}
     -DCMAKE_BUILD_TYPE=Release "-DCMAKE_PREFIX_PATH=${prefix}" -DWITH_TORCH=OFF)
step("building the consumer" ${CMAKE_COMMAND} --build "${build}")
step("running the consumer" "${build}/consumer")
