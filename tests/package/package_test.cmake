# cmake -DBUILD=... -DSOURCE=... -DWORK=... -DGENERATOR=... -DCOMPILER=... -P package_test.cmake
# Installs the build into an empty folder and builds and runs a foreign project with what is there.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message(STATUS "${what}\n${output}")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed: ${result}")
  endif()
endfunction()

run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
# The package must not reach back into the tree that it was built from.
file(GLOB_RECURSE files ${WORK}/prefix/*.cmake)
foreach(file IN LISTS files)
  file(READ ${file} text)
  if(text MATCHES "${SOURCE}/(src|include)|${BUILD}/")
    message(FATAL_ERROR "${file} names the source or build folder")
  endif()
endforeach()
run("version" ${WORK}/prefix/bin/tessera --version)
run("configure" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE}/tests/package -B ${WORK}/build
  -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${COMPILER} ${FLAGS})
run("build" ${CMAKE_COMMAND} --build ${WORK}/build)
run("run" ${WORK}/build/foreign)
file(REMOVE_RECURSE ${WORK})
