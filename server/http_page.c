/* http_page.c: GET /: a status page for browsers, plain text for the others, and the page's own files. */
#include "server/http_page.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/clock.h"
#include "server/daemon.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/models.h"
#include "server/page/status_page.h" /* generated */

/* Nothing from elsewhere, nothing inline, nowhere else to send to, in nobody's frame. */
#define CONTENT_SECURITY_POLICY                                                                              \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "           \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static enum MHD_Result reply_page(struct dk_http_request *request, const char *media_type,
                                  struct MHD_Response *response)
{
    if (response != NULL) {
        /* These fail only when memory is out. */
        (void)MHD_add_response_header(response, "Content-Security-Policy", CONTENT_SECURITY_POLICY);
        (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
        (void)MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Accept");
    }
    return dk_http_reply(request, MHD_HTTP_OK, media_type, response);
}

static void add_bytes(struct dk_json_text *page, const char *from, const char *to)
{
    char block[256];
    while (from < to) {
        size_t length = (size_t)(to - from) < sizeof block - 1 ? (size_t)(to - from) : sizeof block - 1;
        memcpy(block, from, length);
        block[length] = '\0';
        dk_json_text_raw(page, block);
        from += length;
    }
}

void dk_page_write(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    const char *at = (const char *)dk_page_status_html;
    const char *end = at + sizeof dk_page_status_html;
    while (at < end) {
        const char *slot = memmem(at, (size_t)(end - at), "{{", 2);
        if (slot == NULL) {
            break;
        }
        const char *close = memmem(slot, (size_t)(end - slot), "}}", 2);
        assert(close != NULL);
        add_bytes(page, at, slot);
        bool is_known = dk_page_fill(page, daemon, slot + 2, (size_t)(close - slot - 2));
        assert(is_known);
        (void)is_known;
        at = close + 2;
    }
    add_bytes(page, at, end);
}

static void write_text(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    dk_json_text_raw(page, "decomposek " DK_VERSION "\nstate: ");
    (void)dk_page_fill(page, daemon, "state", strlen("state"));
    dk_json_text_raw(page, "\nbackend: ");
    dk_json_text_raw(page, dk_engine_get_info(daemon->engine)->reason);
    dk_json_text_raw(page, "\nmodels:");
    size_t cursor = 0;
    if (dk_daemon_get_state(daemon) != DK_DAEMON_LOADING) {
        for (struct dk_model *model; (model = dk_models_next(daemon->models, &cursor)) != NULL;) {
            dk_json_text_raw(page, " ");
            dk_json_text_raw(page, model->name);
            dk_model_release(model);
        }
    }
    dk_json_text_raw(page, "\nroutes:\n");
    for (size_t i = 0; i < dk_route_count; i++) {
        char allow[64];
        dk_route_allow(&dk_routes[i], allow, sizeof allow);
        allow[strcspn(allow, ",")] = '\0';
        dk_json_text_raw(page, "  ");
        dk_json_text_raw(page, allow);
        dk_json_text_raw(page, " ");
        dk_json_text_raw(page, dk_routes[i].path);
        dk_json_text_raw(page, "  ");
        dk_json_text_raw(page, dk_routes[i].help);
        dk_json_text_raw(page, "\n");
    }
}

enum MHD_Result dk_page_index(struct dk_http_request *request)
{
    bool is_named;
    bool wants_html = dk_accept_quality(request->head.accept, "text/html", &is_named) > 0 && is_named;
    struct dk_json_text page = {0};
    if (wants_html) {
        dk_page_write(&page, request->daemon);
    } else {
        write_text(&page, request->daemon);
    }
    if (page.failed) {
        return dk_http_reply_text(request, MHD_HTTP_OK, "text/plain", NULL, &page); /* says out of memory */
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(page.length, page.data, free);
    if (response == NULL) {
        dk_json_text_free(&page);
    }
    return reply_page(request, wants_html ? "text/html; charset=utf-8" : "text/plain; charset=utf-8",
                      response);
}

/* The cast drops const: libmicrohttpd only reads. */
static enum MHD_Result reply_file(struct dk_http_request *request, const char *media_type,
                                  const unsigned char *bytes, size_t size)
{
    return reply_page(
        request, media_type,
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)bytes, MHD_RESPMEM_PERSISTENT));
}

enum MHD_Result dk_page_style(struct dk_http_request *request)
{
    return reply_file(request, "text/css; charset=utf-8", dk_page_status_css, sizeof dk_page_status_css);
}

enum MHD_Result dk_page_script(struct dk_http_request *request)
{
    return reply_file(request, "text/javascript; charset=utf-8", dk_page_status_js, sizeof dk_page_status_js);
}
