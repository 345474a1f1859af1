# Write the commit into a C file; run at every build, the file changes only with the commit.
# cmake -DSOURCE_DIR=... -DOUTPUT=... -P bench_commit.cmake
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT commit MATCHES "^[0-9a-z-]+$")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "/* The commit of this build. */
#include \"client/bench_report.h\"

const char dk_bench_commit[] = \"${commit}\";
")
