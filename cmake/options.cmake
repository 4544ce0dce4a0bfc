set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(TESSERA_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(TESSERA_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(TESSERA_BENCHMARKS "Build the micro-benchmarks" OFF)
set(TESSERA_SANITIZE "" CACHE STRING "Value of -fsanitize=, for example address,undefined or thread")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache asks for where headers are precompiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

# Flags of our own targets only; never -ffast-math or -march=native: kernels dispatch at run time and NaN checks must stay.
add_library(tessera_flags INTERFACE)
# -Wrestrict, -Warray-bounds, -Wstringop-overread: GCC 12 reports string concatenation wrongly (its bugs 105651, 105329).
target_compile_options(tessera_flags INTERFACE -Wall -Wextra -Wshadow -Werror $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overread>)
# GCC collects its garbage less often: a tenth of the time to compile for a tenth more memory.
target_compile_options(tessera_flags INTERFACE "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-expand=100 --param ggc-min-heapsize=1000000>")
target_compile_definitions(tessera_flags INTERFACE $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)
if(TESSERA_SANITIZE)
  # Instrumented code makes GCC warn about what cannot happen; the plain builds keep warnings as errors.
  target_compile_options(tessera_flags INTERFACE -Wno-error)
  # A null pointer that is read ends in the address sanitizer anyway; the checks would lengthen the build by half.
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-sanitize=null,vptr -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()
