/* http_reply.h: answers: text in one buffer, errors, streams; and the last word on a socket about to close.
 */
#ifndef DK_SERVER_HTTP_REPLY_H
#define DK_SERVER_HTTP_REPLY_H

#include <microhttpd.h>
#include <stdbool.h>

#include "proto/json_writer.h"
#include "server/http_request.h"

#define DK_MEDIA_JSON "application/json"
#define DK_MEDIA_RAW  "application/octet-stream"

/* Queue `response` (taken) with the headers every answer has. MHD_NO: the connection must be closed.
 * Thread: HTTP, from the request handler. */
enum MHD_Result dk_http_reply(struct dk_http_request *request, unsigned http_status, const char *media_type,
                              struct MHD_Response *response);
/* `text` is taken; a failed text is answered as DK_NO_MEMORY. `content_encoding` is what the text went
 * through, NULL for nothing. */
enum MHD_Result dk_http_reply_text(struct dk_http_request *request, unsigned http_status,
                                   const char *media_type, const char *content_encoding,
                                   struct dk_json_text *text);
/* {"error", "status"} with the status' HTTP code; Allow, Retry-After, WWW-Authenticate and
 * Accept-Encoding where they belong. */
enum MHD_Result dk_http_reply_error(struct dk_http_request *request, const struct dk_error *error);

/* Writes a complete error answer with Connection: close straight to the socket, without waiting: for a
 * request whose body will not be read, which libmicrohttpd cannot answer. The caller closes. Best effort. */
void dk_http_send_error_now(int fd, const struct dk_error *error, bool is_head);

#endif
