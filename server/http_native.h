/* http_native.h: the two forms of an answer to POST /v1/matmul. */
#ifndef DK_SERVER_HTTP_NATIVE_H
#define DK_SERVER_HTTP_NATIVE_H

#include <microhttpd.h>
#include <stdint.h>

#include "server/http_request.h"

/* Answer with request->matmul.job, which is complete and without error, and give up the job: its slabs are
 * free again before the client has read a byte, unless DK_ANSWER_BYTES_MAX are on their way already.
 * `now_ns` ends the total time that is reported. Thread: HTTP. */
enum MHD_Result dk_native_reply_json(struct dk_http_request *request, uint64_t now_ns);
enum MHD_Result dk_native_reply_raw(struct dk_http_request *request, uint64_t now_ns);

#endif
