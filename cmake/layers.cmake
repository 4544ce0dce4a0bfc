# tessera_layer(NAME [LAYERS layer...] [DEPENDS target...]): the static library of src/NAME. Every .cpp of the folder
# (and of its sub-folders) belongs to it, so that a new file needs no list line here.
function(tessera_layer name)
  cmake_parse_arguments(ARG "" "" "LAYERS;DEPENDS" ${ARGN})
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
endfunction()
