/* http_reply.c: building and queueing answers. */
#include "server/http_reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/native_api.h"
#include "server/daemon.h"
#include "server/http_connection.h"
#include "server/http_routes.h"

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    (void)MHD_add_response_header(response, name, value); /* fails only when memory is out */
}

enum MHD_Result dk_http_reply(struct dk_http_request *request, unsigned http_status, const char *media_type,
                              struct MHD_Response *response)
{
    if (response == NULL) {
        return MHD_NO;
    }
    if (media_type != NULL) {
        add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, media_type);
    }
    add_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (request->should_close || dk_daemon_get_state(request->daemon) >= DK_DAEMON_DRAINING) {
        add_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    enum MHD_Result result = MHD_NO;
    if (dk_http_connection_enter(request->connection, DK_PHASE_ANSWER)) {
        result = MHD_queue_response(request->mhd, http_status, response);
    }
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result dk_http_reply_text(struct dk_http_request *request, unsigned http_status,
                                   const char *media_type, const char *content_encoding,
                                   struct dk_json_text *text)
{
    if (text->failed) {
        struct dk_error error;
        dk_json_text_free(text);
        (void)dk_fail(&error, DK_NO_MEMORY, "out of memory while writing the answer");
        return dk_http_reply_error(request, &error);
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(text->length, text->data, free);
    if (response == NULL) {
        dk_json_text_free(text);
        return MHD_NO;
    }
    if (content_encoding != NULL) {
        add_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, content_encoding);
        add_header(response, MHD_HTTP_HEADER_VARY, "Accept-Encoding");
    }
    *text = (struct dk_json_text){0};
    return dk_http_reply(request, http_status, media_type, response);
}

enum MHD_Result dk_http_reply_error(struct dk_http_request *request, const struct dk_error *error)
{
    struct dk_json_text text = {0};
    dk_error_body(&text, error);
    if (text.failed || text.data == NULL) {
        dk_json_text_free(&text);
        return MHD_NO;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(text.length, text.data, free);
    if (response == NULL) {
        dk_json_text_free(&text);
        return MHD_NO;
    }
    unsigned http_status = (unsigned)dk_status_http(error->status);
    if (http_status == 503) {
        add_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    }
    if (error->status == DK_METHOD_NOT_ALLOWED && request->route != NULL) {
        char allow[64];
        dk_route_allow(request->route, allow, sizeof allow);
        add_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    }
    if (error->status == DK_UNAUTHORIZED) {
        add_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"decomposek\"");
    }
    if (error->status == DK_UNSUPPORTED_MEDIA) {
        add_header(response, MHD_HTTP_HEADER_ACCEPT_ENCODING, "gzip, deflate");
    }
    return dk_http_reply(request, http_status, DK_MEDIA_JSON, response);
}

void dk_http_send_error_now(int fd, const struct dk_error *error, bool is_head)
{
    struct dk_json_text body = {0};
    dk_error_body(&body, error);
    if (body.failed || body.data == NULL) {
        dk_json_text_free(&body);
        return;
    }
    int http_status = dk_status_http(error->status);
    const char *reason = MHD_get_reason_phrase_for((unsigned)http_status);
    char head[256];
    int head_length = snprintf(head, sizeof head,
                               "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: " DK_MEDIA_JSON
                               "\r\n%sContent-Length: %zu\r\n\r\n",
                               http_status, reason != NULL ? reason : "Error",
                               http_status == 503   ? "Retry-After: 1\r\n"
                               : http_status == 401 ? "WWW-Authenticate: Bearer realm=\"decomposek\"\r\n"
                                                    : "",
                               body.length);
    struct iovec parts[2] = {{.iov_base = head, .iov_len = (size_t)head_length},
                             {.iov_base = body.data, .iov_len = body.length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = is_head ? 1 : 2};
    /* A few hundred bytes into a send buffer that holds nothing: fits, or the client is gone anyway. */
    (void)sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    dk_json_text_free(&body);
}
