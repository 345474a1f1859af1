/* bench_inproc.h: the times that decomposek-bench-inproc writes. */
#ifndef DK_CLIENT_BENCH_INPROC_H
#define DK_CLIENT_BENCH_INPROC_H

#include "client/bench.h"

#define DK_BENCH_INPROC_PROGRAM "decomposek-bench-inproc"

/* Read one run of the program from `fd` to its end: the header into *server, the times into *result (zeroed
 * by the caller; window_s is not touched). DK_BAD_FILE: no header, or the end came before the last record
 * (the program has said why on standard error); what was read until then is kept in *result. */
dk_status dk_bench_inproc_read(int fd, struct dk_bench_server *server, struct dk_load_result *result,
                               struct dk_error *error);

/* "K,N[,DTYPE]" into n, k and dtype (bf16 by default). DK_BAD_VALUE quotes the text. */
dk_status dk_bench_inproc_parse_shape(const char *text, struct dk_remote_model *out, struct dk_error *error);

#endif
