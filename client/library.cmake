# The C client for other programs. dk_client_lib: its archive for our own targets. decomposek_client: the shared library;
# decomposek_client_static: the archive that is installed, whole in itself. Both come with decomposek_client.pc.
option(DK_CLIENT_HTTP "The client library speaks HTTP too, which needs libcurl; else shared memory only" ON)

# Behind the command line as well, whatever the library speaks.
add_library(dk_client_http STATIC http_client.c remote.c remote_matmul.c)
target_link_libraries(dk_client_http PUBLIC dk_proto PkgConfig::CURL)

set(library_sources
  client.c client_infer.c client_requests.c area.c shm_client.c shm_connect.c shm_control.c shm_data.c)
set(library_objects $<TARGET_OBJECTS:dk_client_lib>)
set(DK_CLIENT_LIBS_PRIVATE "-lcjson -lm")
if(DK_CLIENT_HTTP)
  list(APPEND library_sources client_http.c client_http_models.c client_http_buffers.c)
  list(APPEND library_objects $<TARGET_OBJECTS:dk_client_http>)
  string(PREPEND DK_CLIENT_LIBS_PRIVATE "-lcurl ")
endif()
add_library(dk_client_lib STATIC ${library_sources})
target_include_directories(dk_client_lib PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>)
target_link_libraries(dk_client_lib PUBLIC dk_proto)
if(DK_CLIENT_HTTP)
  target_link_libraries(dk_client_lib PUBLIC dk_client_http)
  target_compile_definitions(dk_client_lib PRIVATE DK_CLIENT_HTTP)
endif()

add_library(decomposek_client SHARED ${library_objects})
target_include_directories(decomposek_client INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_link_libraries(decomposek_client PRIVATE dk_proto m)
if(DK_CLIENT_HTTP)
  target_link_libraries(decomposek_client PRIVATE PkgConfig::CURL)
endif()
target_link_options(decomposek_client PRIVATE -Wl,--as-needed
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/decomposek_client.map)
set_target_properties(decomposek_client PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/decomposek_client.map)
add_library(decomposek_client_static STATIC ${library_objects} $<TARGET_OBJECTS:dk_proto>)
set_target_properties(decomposek_client_static PROPERTIES OUTPUT_NAME decomposek_client)

# Examples: they know the public headers and the shared library only.
foreach(name blocking pipeline)
  add_executable(example_${name} examples/${name}.c)
  target_compile_options(example_${name} PRIVATE -Wall -Wextra -Wconversion)
  target_link_libraries(example_${name} PRIVATE decomposek_client)
  if(DK_SANITIZE)
    target_link_options(example_${name} PRIVATE -fsanitize=${DK_SANITIZE})
  endif()
endforeach()

configure_file(decomposek_client.pc.in decomposek_client.pc @ONLY)
install(TARGETS decomposek_client
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libdecomposek_client
  NAMELINK_COMPONENT libdecomposek_client_dev)
install(TARGETS decomposek_client_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libdecomposek_client_dev)
install(FILES include/decomposek_client.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/decomposek
  COMPONENT libdecomposek_client_dev)
install(FILES ${PROJECT_SOURCE_DIR}/proto/status.h ${PROJECT_SOURCE_DIR}/proto/dtype.h ${PROJECT_SOURCE_DIR}/proto/gemm.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/decomposek/proto COMPONENT libdecomposek_client_dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/decomposek_client.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT libdecomposek_client_dev)
