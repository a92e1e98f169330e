# SPDX-License-Identifier: Apache-2.0
# plimsoll_find_libtorch([wanted version]) makes the imported target plimsoll::libtorch from a
# PyPI wheel or a LibTorch archive and sets PLIMSOLL_TORCH_DIR, _FOUND and _VERSION in the caller.
# Where PLIMSOLL_TORCH_PARALLEL_OPTIONS is set, sources of ours are compiled with it and need the
# OpenMP library that this LibTorch uses: the target links it.
#
# Not find_package(Torch): on the wheel it configures only with a CUDA toolkit and its link line
# asks for NCCL symbols that a system's NCCL may not have. The C++ side needs torch_cpu and c10
# only, so a CPU-only wheel does as well.
#
# Looked for in this order: PLIMSOLL_TORCH_DIR; in a wheel's build the environment it is built for; CMAKE_PREFIX_PATH (…/share/cmake/Torch or the torch
# folder itself); an activated virtual environment or conda environment; python3's own torch; at last
# the one that the installed package was built with (PLIMSOLL_BUILT_WITH_TORCH).

function(plimsoll_torch_candidates out)
  set(candidates "")
  if(PLIMSOLL_TORCH_DIR)
    list(APPEND candidates "${PLIMSOLL_TORCH_DIR}")
  endif()
  if(SKBUILD)
    # pip hides the environment's packages from an isolated build; its folder is known all the same.
    execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_path('purelib'))"
                    OUTPUT_VARIABLE site OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND candidates "${site}/torch")
  endif()
  foreach(prefix ${CMAKE_PREFIX_PATH})
    list(APPEND candidates "${prefix}" "${prefix}/../.." "${prefix}/../../..")
  endforeach()
  foreach(python "$ENV{VIRTUAL_ENV}/bin/python" "$ENV{CONDA_PREFIX}/bin/python" python3)
    execute_process(
      COMMAND "${python}" -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND found)
      list(APPEND candidates "${found}")
    endif()
  endforeach()
  if(PLIMSOLL_BUILT_WITH_TORCH)
    list(APPEND candidates "${PLIMSOLL_BUILT_WITH_TORCH}")
  endif()
  set(${out} "${candidates}" PARENT_SCOPE)
endfunction()

function(plimsoll_read_torch_version folder out)
  set(version "")
  if(EXISTS "${folder}/include/torch/headeronly/version.h")
    set(header "${folder}/include/torch/headeronly/version.h")
  else()
    set(header "${folder}/include/torch/version.h")
  endif()
  if(EXISTS "${header}")
    file(READ "${header}" text)
    foreach(part MAJOR MINOR PATCH)
      string(REGEX MATCH "#define TORCH_VERSION_${part} ([0-9]+)" _ "${text}")
      list(APPEND version "${CMAKE_MATCH_1}")
    endforeach()
    string(REPLACE ";" "." version "${version}")
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# The OpenMP library that this LibTorch uses, whichever it is: all of them have GCC's entry points,
# and a second one in a process would have threads of its own.
function(plimsoll_find_openmp folder out)
  execute_process(COMMAND "${CMAKE_READELF}" -d "${folder}/lib/libtorch_cpu.so"
                  OUTPUT_VARIABLE needed ERROR_QUIET)
  set(name libgomp.so.1)
  if(needed MATCHES "NEEDED[^[]*\\[(lib[a-z]*omp[^]]*)\\]")
    set(name "${CMAKE_MATCH_1}")
  endif()
  # In a wheel, in an older wheel, in a conda environment.
  foreach(place "${folder}/lib" "${folder}/../torch.libs" "${folder}/../../..")
    if(EXISTS "${place}/${name}")
      set(${out} "${place}/${name}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" "-print-file-name=${name}"
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${found}")
    message(FATAL_ERROR "Plimsoll: ${folder}/lib/libtorch_cpu.so uses ${name}, which was not found "
                        "beside it, nor by ${CMAKE_CXX_COMPILER}; install it")
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(plimsoll_find_libtorch)
  set(wanted "${ARGV0}")
  set(PLIMSOLL_TORCH_FOUND FALSE PARENT_SCOPE)
  plimsoll_torch_candidates(candidates)
  foreach(folder ${candidates})
    get_filename_component(folder "${folder}" REALPATH)
    if(NOT EXISTS "${folder}/lib/libtorch_cpu.so" OR NOT EXISTS "${folder}/include/ATen/ATen.h")
      continue()
    endif()
    plimsoll_read_torch_version("${folder}" version)
    if(wanted AND NOT version VERSION_EQUAL wanted)
      message(STATUS "Plimsoll: LibTorch ${version} in ${folder} passed over, ${wanted} is needed")
      continue()
    endif()
    if(version VERSION_LESS 2.11 OR version VERSION_GREATER_EQUAL 2.16)
      message(WARNING "Plimsoll is tested with LibTorch 2.11 to 2.15; ${folder} holds ${version}")
    endif()
    if(NOT TARGET plimsoll::libtorch)
      add_library(plimsoll::c10 SHARED IMPORTED GLOBAL)
      set_target_properties(plimsoll::c10 PROPERTIES IMPORTED_LOCATION "${folder}/lib/libc10.so")
      add_library(plimsoll::libtorch SHARED IMPORTED GLOBAL)
      file(GLOB nvidia_folders "${folder}/../nvidia/*/lib" "${folder}/../nvidia/*/*/lib")
      set(rpath_links "")
      foreach(nvidia_folder ${nvidia_folders})
        list(APPEND rpath_links "LINKER:-rpath-link,${nvidia_folder}")
      endforeach()
      set(openmp "")
      if(PLIMSOLL_TORCH_PARALLEL_OPTIONS)
        plimsoll_find_openmp("${folder}" openmp)
      endif()
      set_target_properties(plimsoll::libtorch PROPERTIES
        IMPORTED_LOCATION "${folder}/lib/libtorch_cpu.so"
        INTERFACE_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
        INTERFACE_LINK_LIBRARIES "plimsoll::c10;${openmp}"
        # Registrations live in libraries that no symbol refers to: keep them.
        INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed;${rpath_links}")
    endif()
    set(PLIMSOLL_TORCH_FOUND TRUE PARENT_SCOPE)
    set(PLIMSOLL_TORCH_DIR "${folder}" CACHE PATH "The torch folder of a wheel or LibTorch archive" FORCE)
    set(PLIMSOLL_TORCH_VERSION "${version}" PARENT_SCOPE)
    return()
  endforeach()
  if(wanted)
    message(FATAL_ERROR "Plimsoll: LibTorch ${wanted} not found; set PLIMSOLL_TORCH_DIR to the torch "
                        "folder of a wheel (python -c 'import torch; print(torch.__path__[0])')")
  endif()
endfunction()
