# Writes OUT, a header with the commit that is being built; run before each build of bench_kernels.
# cmake -DSOURCE=<tree> -DOUT=<header> -P commit.cmake
set(commit unknown)
find_program(git git)
if(git AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND ${git} describe --always --dirty --abbrev=12
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE described RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(commit ${described})
  endif()
endif()
set(text "#define DK_COMMIT \"${commit}\"\n")
if(EXISTS "${OUT}")
  file(READ "${OUT}" before)
endif()
if(NOT before STREQUAL text)
  file(WRITE "${OUT}" "${text}")
endif()
