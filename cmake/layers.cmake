# One precompiled header of what nearly every source includes; sources still name each header that they use (clang-tidy runs
# without it). Compiled for lang and used by the layers above it, and again where the flags differ: exec (oneDNN's OpenMP), programs (-fPIE).
set(TESSERA_PCH <algorithm> <array> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <optional> <set> <span> <sstream>
  <string> <string_view> <unordered_map> <vector> <fmt/format.h> <fmt/ranges.h>)

# tessera_layer(NAME [OWN_PCH] [LAYERS layer...] [DEPENDS target...]): the static library of src/NAME. Every .cpp of the folder
# (and of its sub-folders) belongs to it, so that a new file needs no list line here.
function(tessera_layer name)
  cmake_parse_arguments(ARG "OWN_PCH" "" "LAYERS;DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  add_library(tessera_${name} STATIC ${sources})
  set_target_properties(tessera_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(tessera_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tessera_${name} PRIVATE $<BUILD_INTERFACE:tessera_flags> fmt::fmt ${ARG_DEPENDS})
  foreach(layer IN LISTS ARG_LAYERS)
    target_link_libraries(tessera_${name} PUBLIC tessera_${layer})
  endforeach()
  target_link_libraries(tessera_${name} PUBLIC Threads::Threads)
  if(ARG_OWN_PCH)
    target_precompile_headers(tessera_${name} PRIVATE ${TESSERA_PCH})
  elseif(TARGET tessera_lang)
    target_precompile_headers(tessera_${name} REUSE_FROM tessera_lang)
  endif()
endfunction()
