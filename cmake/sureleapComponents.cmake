# SPDX-License-Identifier: MIT
#
# The optional components: the kernels, compiled once, and dependencies with the targets that join them to sureleap. One
# file for the build tree and for the installed package, so that both give the same targets.

# sureleap_add_component(<name> <found> <why_not>)
#
# Defines sureleap::<name> if the dependency of the component is there, and sets <found>; otherwise <why_not> says what
# is missing. A dependency target that the project already defined is used as it is.
function(sureleap_add_component name found why_not)
    if(name STREQUAL "compiled")
        sureleap_add_compiled_component(${name})
        set(${found} TRUE PARENT_SCOPE)
        return()
    endif()
    if(name STREQUAL "cuda")
        sureleap_add_cuda_component(${name} is_found reason)
        set(${found} ${is_found} PARENT_SCOPE)
        set(${why_not} "${reason}" PARENT_SCOPE)
        return()
    endif()
    if(name STREQUAL "mpi")
        sureleap_add_mpi_component(${name} is_found reason)
        set(${found} ${is_found} PARENT_SCOPE)
        set(${why_not} "${reason}" PARENT_SCOPE)
        return()
    endif()
    # Versions are compared here and not by find_package: find_package(Eigen3 3.4) rejects 5.0, a range rejects 3.4.0.
    if(name STREQUAL "eigen")
        set(package Eigen3)
        set(dependency Eigen3::Eigen)
        set(oldest 3.4)
    elseif(name STREQUAL "xsimd")
        set(package xsimd)
        set(dependency xsimd)
        set(oldest 8.1)
    elseif(name STREQUAL "json")
        set(package nlohmann_json)
        set(dependency nlohmann_json::nlohmann_json)
        set(oldest 3.10)
    elseif(name STREQUAL "llama")
        set(package llama)
        set(dependency llama)
        set(oldest 0.5)
    else()
        set(${found} FALSE PARENT_SCOPE)
        set(${why_not} "sureleap has no component \"${name}\" (it has compiled, eigen, xsimd, json, llama, mpi and cuda)" PARENT_SCOPE)
        return()
    endif()

    if(TARGET sureleap::${name})
        set(${found} TRUE PARENT_SCOPE)
        return()
    endif()

    set(${found} FALSE PARENT_SCOPE)
    if(NOT TARGET ${dependency})
        find_package(${package} CONFIG QUIET)
        if(NOT TARGET ${dependency})
            set(${why_not} "${package} >= ${oldest} was not found (CMAKE_PREFIX_PATH or ${package}_DIR can name it)"
                PARENT_SCOPE)
            return()
        endif()
        if(${package}_VERSION VERSION_LESS oldest)
            set(${why_not} "${package} ${${package}_VERSION} in ${${package}_DIR} is older than ${oldest}" PARENT_SCOPE)
            return()
        endif()
        # The generator expression below is evaluated in the user's directory, where CMake 3.22 does not see what was
        # found here.
        get_target_property(is_imported ${dependency} IMPORTED)
        if(name STREQUAL "xsimd" AND is_imported)
            set_target_properties(${dependency} PROPERTIES IMPORTED_GLOBAL TRUE)
        endif()
    endif()

    # IMPORTED, so that the dependency's headers count as system headers; GLOBAL, so that a project that adds sureleap
    # as a subdirectory sees it.
    add_library(sureleap::${name} INTERFACE IMPORTED GLOBAL)
    target_link_libraries(sureleap::${name} INTERFACE sureleap::sureleap)
    if(name STREQUAL "xsimd")
        # Only the include directory: some distributions' target also links xtl, which need not be installed.
        target_include_directories(sureleap::xsimd INTERFACE $<TARGET_PROPERTY:xsimd,INTERFACE_INCLUDE_DIRECTORIES>)
    else()
        target_link_libraries(sureleap::${name} INTERFACE ${dependency})
    endif()
    set(${found} TRUE PARENT_SCOPE)
endfunction()

# What every program compiles alike (sureleap/compiled/), compiled once in the user's project with the user's options.
function(sureleap_add_compiled_component name)
    if(TARGET sureleap::${name})
        return()
    endif()
    get_target_property(directories sureleap::sureleap INTERFACE_INCLUDE_DIRECTORIES)
    string(REGEX REPLACE "[$]<BUILD_INTERFACE:([^>]*)>" "\\1" directories "${directories}")
    find_path(sureleap_${name}_sources sureleap/compiled/all.cpp PATHS ${directories} NO_DEFAULT_PATH
              NO_CMAKE_FIND_ROOT_PATH NO_CACHE REQUIRED)
    set(sources kernels.cpp rounds.cpp rows.cpp)
    list(TRANSFORM sources PREPEND ${sureleap_${name}_sources}/sureleap/compiled/)
    add_library(sureleap_${name} STATIC EXCLUDE_FROM_ALL ${sources})
    add_library(sureleap::${name} ALIAS sureleap_${name})
    set_target_properties(sureleap_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_definitions(sureleap_${name} INTERFACE SURELEAP_COMPILED=1)
    target_link_libraries(sureleap_${name} PUBLIC sureleap::sureleap)
endfunction()

# sureleap/ext/mpi.hpp with MPI 3 or later. It is found by the compiler that is in use, so it takes a C++ project.
function(sureleap_add_mpi_component name found why_not)
    set(oldest 3.0)  # which has MPI_Iallgather
    set(${found} FALSE PARENT_SCOPE)
    if(NOT TARGET sureleap::${name})
        set(MPI_CXX_SKIP_MPICXX ON)  # the bindings for C++, which MPI 3 has no more
        find_package(MPI COMPONENTS CXX QUIET)
        if(NOT TARGET MPI::MPI_CXX)
            set(${why_not} "MPI >= ${oldest} was not found (MPI_HOME can name it)" PARENT_SCOPE)
            return()
        endif()
        if(MPI_CXX_VERSION VERSION_LESS oldest)
            set(${why_not} "MPI ${MPI_CXX_VERSION} is older than ${oldest}" PARENT_SCOPE)
            return()
        endif()
        add_library(sureleap::${name} INTERFACE IMPORTED GLOBAL)
        target_link_libraries(sureleap::${name} INTERFACE sureleap::sureleap MPI::MPI_CXX)
        set_target_properties(MPI::MPI_CXX PROPERTIES IMPORTED_GLOBAL TRUE)
    endif()
    set(${found} TRUE PARENT_SCOPE)
endfunction()

# sureleap/cuda/*.cuh with a CUDA toolkit. The project itself enables the language CUDA, and says for which devices. The
# name is a parameter here too: vcpkg tells users to link every target whose name it can read in these files.
function(sureleap_add_cuda_component name found why_not)
    set(oldest 12.0)  # the first nvcc that speaks C++20
    set(${found} FALSE PARENT_SCOPE)
    if(NOT TARGET sureleap::${name})
        if(NOT TARGET CUDA::cudart)
            find_package(CUDAToolkit QUIET)
        endif()
        if(NOT TARGET CUDA::cudart)
            set(${why_not} "CUDAToolkit >= ${oldest} was not found (CUDAToolkit_ROOT can name it)" PARENT_SCOPE)
            return()
        endif()
        if(CUDAToolkit_VERSION VERSION_LESS oldest)
            set(${why_not} "CUDAToolkit ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR} is older than ${oldest}" PARENT_SCOPE)
            return()
        endif()
        add_library(sureleap::${name} INTERFACE IMPORTED GLOBAL)
        target_link_libraries(sureleap::${name} INTERFACE sureleap::sureleap CUDA::cudart)
        # Not CUDA_STANDARD 20: CMake before 3.26 does not know it for nvcc.
        target_compile_options(sureleap::${name} INTERFACE $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20>)
    endif()
    set(${found} TRUE PARENT_SCOPE)
endfunction()
