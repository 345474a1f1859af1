/* http_client.c: libcurl behind a send-one, get-one interface. */
#include "client/http_client.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Larger than any error text of ours; keeps an error page of something else from filling the terminal. */
enum { ERROR_BODY_BYTES = 64 * 1024 };

/* --- the answer's body --------------------------------------------------------------------------------- */

struct sink {
    CURL *easy;
    char *data;
    size_t length, capacity, limit;
    bool is_too_large, has_no_memory;
};

struct dk_http_client {
    CURL *easy;
    char *url; /* without trailing slashes */
    char *unix_socket;
    char *authorization; /* the whole header line, or NULL */
    long timeout_ms;
    char curl_error[CURL_ERROR_SIZE];
    /* Of the exchange under way. */
    const struct dk_http_request *request;
    struct curl_slist *headers;
    struct sink sink;
    uint64_t began_ns;
};

/* Grow geometrically; the first time to the announced length, if the limit allows it. */
static bool sink_reserve(struct sink *sink, size_t needed)
{
    if (needed < sink->capacity) /* one byte stays for the terminator */
        return true;
    size_t capacity = sink->capacity ? sink->capacity * 2 : 4096;
    curl_off_t announced = -1;
    if (!sink->data)
        curl_easy_getinfo(sink->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &announced);
    if (announced > 0 && (uint64_t)announced <= sink->limit)
        capacity = (size_t)announced + 1;
    if (capacity <= needed)
        capacity = needed + 1;
    char *moved = realloc(sink->data, capacity);
    if (!moved)
        return false;
    sink->data = moved;
    sink->capacity = capacity;
    return true;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
    struct sink *sink = context;
    size_t length = size * count;
    long http_status = 0;
    curl_easy_getinfo(sink->easy, CURLINFO_RESPONSE_CODE, &http_status);
    size_t limit = http_status >= 400 && sink->limit < ERROR_BODY_BYTES ? ERROR_BODY_BYTES : sink->limit;
    if (length > limit - sink->length) {
        sink->is_too_large = true;
        return CURL_WRITEFUNC_ERROR;
    }
    if (!sink_reserve(sink, sink->length + length)) {
        sink->has_no_memory = true;
        return CURL_WRITEFUNC_ERROR;
    }
    memcpy(sink->data + sink->length, bytes, length);
    sink->length += length;
    return length;
}

/* --- set-up -------------------------------------------------------------------------------------------- */

static dk_status check_url(const char *url, struct dk_error *error)
{
    CURLU *parts = curl_url();
    if (!parts)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the URL");
    CURLUcode code = curl_url_set(parts, CURLUPART_URL, url, 0);
    char *scheme = NULL, *unwanted = NULL;
    dk_status status = DK_OK;
    if (code != CURLUE_OK || curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK)
        status = dk_fail(error, DK_BAD_VALUE, "URL '%s': %s; expected http://host:port", url,
                         curl_url_strerror(code));
    else if (strcmp(scheme, "http") != 0)
        status = dk_fail(error, DK_BAD_VALUE, "URL '%s': scheme '%s' is not supported; expected http", url,
                         scheme);
    else if (curl_url_get(parts, CURLUPART_QUERY, &unwanted, 0) == CURLUE_OK ||
             curl_url_get(parts, CURLUPART_FRAGMENT, &unwanted, 0) == CURLUE_OK ||
             curl_url_get(parts, CURLUPART_USER, &unwanted, 0) == CURLUE_OK)
        status = dk_fail(error, DK_BAD_VALUE, "URL '%s': '%s' has no place there; expected http://host:port",
                         url, unwanted);
    curl_free(scheme);
    curl_free(unwanted);
    curl_url_cleanup(parts);
    return status;
}

static bool set_options(struct dk_http_client *client)
{
    CURL *easy = client->easy;
    CURLcode code = CURLE_OK;
#define SET(option, value)                                                                                   \
    if (code == CURLE_OK)                                                                                    \
    code = curl_easy_setopt(easy, option, value)
    SET(CURLOPT_ERRORBUFFER, client->curl_error);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_USERAGENT, "decomposek/" DK_VERSION);
    SET(CURLOPT_BUFFERSIZE, 256L * 1024);
    SET(CURLOPT_UPLOAD_BUFFERSIZE, 1024L * 1024); /* bodies of megabytes: fewer, longer writes */
    SET(CURLOPT_WRITEFUNCTION, on_body);
    if (client->unix_socket)
        SET(CURLOPT_UNIX_SOCKET_PATH, client->unix_socket);
#undef SET
    return code == CURLE_OK;
}

dk_status dk_http_client_new(const struct dk_http_options *options, struct dk_http_client **out,
                             struct dk_error *error)
{
    dk_status status = check_url(options->url, error);
    if (status != DK_OK)
        return status;
    struct dk_http_client *client = calloc(1, sizeof *client);
    if (!client)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the HTTP client");
    size_t length = strlen(options->url);
    while (length > 0 && options->url[length - 1] == '/')
        length--;
    client->url = strndup(options->url, length);
    client->unix_socket = options->unix_socket ? strdup(options->unix_socket) : NULL;
    client->timeout_ms = (long)(options->timeout_s * 1000.0 + 0.5);
    client->easy = curl_easy_init();
    bool has_key = !options->api_key ||
                   asprintf(&client->authorization, "Authorization: Bearer %s", options->api_key) >= 0;
    if (!has_key)
        client->authorization = NULL; /* undefined after a failed asprintf */
    if (!client->url || (options->unix_socket && !client->unix_socket) || !has_key || !client->easy ||
        !set_options(client)) {
        dk_http_client_free(client);
        return dk_fail(error, DK_NO_MEMORY, "no memory for the HTTP client");
    }
    *out = client;
    return DK_OK;
}

void dk_http_client_free(struct dk_http_client *client)
{
    if (!client)
        return;
    dk_http_client_cancel(client);
    curl_easy_cleanup(client->easy);
    free(client->url);
    free(client->unix_socket);
    if (client->authorization)
        explicit_bzero(client->authorization, strlen(client->authorization));
    free(client->authorization);
    free(client);
}

/* --- errors -------------------------------------------------------------------------------------------- */

static dk_status status_from_http(long http_status)
{
    switch (http_status) {
    case 503:
        return DK_UNAVAILABLE;
    case 500:
        return DK_INTERNAL;
    default:
        for (int i = DK_OK + 1; i < DK_STATUS_COUNT; i++)
            if (dk_status_http((dk_status)i) == http_status)
                return (dk_status)i;
        return http_status >= 400 && http_status < 500 ? DK_BAD_REQUEST : DK_INTERNAL;
    }
}

static dk_status status_from_name(const cJSON *name, dk_status otherwise)
{
    if (cJSON_IsString(name))
        for (int i = DK_OK + 1; i < DK_STATUS_COUNT; i++)
            if (strcmp(dk_status_name((dk_status)i), name->valuestring) == 0)
                return (dk_status)i;
    return otherwise;
}

static dk_status fail_from_answer(const struct dk_http_request *request, long http_status,
                                  const struct sink *sink, struct dk_error *error)
{
    cJSON *body = sink->length > 0 ? cJSON_ParseWithLength(sink->data, sink->length) : NULL;
    dk_status status =
        status_from_name(cJSON_GetObjectItemCaseSensitive(body, "status"), status_from_http(http_status));
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(body, "error");
    if (cJSON_IsString(text))
        dk_fail(error, status, "the server answered %ld: %s", http_status, text->valuestring);
    else
        dk_fail(error, status, "the server answered %ld to %s %s without a JSON error: %.120s", http_status,
                request->method, request->path, sink->length > 0 ? sink->data : "(empty body)");
    cJSON_Delete(body);
    return status;
}

static dk_status fail_from_curl(const struct dk_http_client *client, const struct dk_http_request *request,
                                CURLcode code, const struct sink *sink, struct dk_error *error)
{
    if (sink->is_too_large)
        return dk_fail(error, DK_TOO_LARGE, "the answer to %s %s is longer than %zu bytes", request->method,
                       request->path, sink->limit);
    if (sink->has_no_memory || code == CURLE_OUT_OF_MEMORY)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the answer to %s %s", request->method,
                       request->path);
    const char *reason = client->curl_error[0] ? client->curl_error : curl_easy_strerror(code);
    const char *where = client->unix_socket ? client->unix_socket : client->url;
    if (code == CURLE_OPERATION_TIMEDOUT)
        return dk_fail(error, DK_TIMEOUT, "no complete answer from %s: %s", where, reason);
    if (code == CURLE_COULDNT_CONNECT)
        return dk_fail(error, DK_UNAVAILABLE, "cannot connect to %s: %s (is decomposekd running?)", where,
                       reason);
    return dk_fail(error, DK_UNAVAILABLE, "%s %s at %s failed: %s", request->method, request->path, where,
                   reason);
}

/* --- one exchange -------------------------------------------------------------------------------------- */

static bool append_header(struct curl_slist **list, const char *name, const char *value)
{
    char line[1024];
    int length = snprintf(line, sizeof line, "%s%s", name, value);
    if (length < 0 || (size_t)length >= sizeof line)
        return false; /* our own short names and types always fit */
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer)
        *list = longer;
    return longer != NULL;
}

/* "Expect:" switches off curl's own wait for 100-continue, up to a second for each body above 1 MB. */
static struct curl_slist *make_headers(const struct dk_http_client *client,
                                       const struct dk_http_request *request)
{
    struct curl_slist *list = NULL;
    if (append_header(&list, "Expect:", "") &&
        (!client->authorization || append_header(&list, client->authorization, "")) &&
        (!request->accept || append_header(&list, "Accept: ", request->accept)) &&
        (!request->content_type || append_header(&list, "Content-Type: ", request->content_type)))
        return list;
    curl_slist_free_all(list);
    return NULL;
}

static CURLcode set_request(struct dk_http_client *client, const struct dk_http_request *request,
                            const char *url)
{
    bool is_post = strcmp(request->method, "POST") == 0;
    assert(is_post || strcmp(request->method, "GET") == 0);
    CURLcode code = curl_easy_setopt(client->easy, CURLOPT_URL, url);
    if (code == CURLE_OK)
        code = curl_easy_setopt(client->easy, CURLOPT_TIMEOUT_MS,
                                request->timeout_ms ? (long)request->timeout_ms : client->timeout_ms);
    if (code == CURLE_OK)
        code = curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, client->headers);
    if (code == CURLE_OK)
        code = curl_easy_setopt(client->easy, CURLOPT_WRITEDATA, &client->sink);
    if (code != CURLE_OK || !is_post)
        return code != CURLE_OK ? code : curl_easy_setopt(client->easy, CURLOPT_HTTPGET, 1L);
    code = curl_easy_setopt(client->easy, CURLOPT_POST, 1L);
    if (code == CURLE_OK)
        code =
            curl_easy_setopt(client->easy, CURLOPT_POSTFIELDS, request->body_bytes > 0 ? request->body : "");
    if (code == CURLE_OK)
        code = curl_easy_setopt(client->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
    return code;
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

dk_status dk_http_client_begin(struct dk_http_client *client, const struct dk_http_request *request,
                               struct dk_error *error)
{
    char *url = NULL;
    client->sink = (struct sink){.easy = client->easy, .limit = request->max_answer_bytes};
    client->request = request;
    client->headers = make_headers(client, request);
    if (!client->headers || asprintf(&url, "%s%s", client->url, request->path) < 0) {
        dk_http_client_cancel(client);
        return dk_fail(error, DK_NO_MEMORY, "no memory for a request");
    }
    client->curl_error[0] = 0;
    CURLcode code = set_request(client, request, url);
    free(url); /* curl has its own copy */
    if (code != CURLE_OK) {
        dk_status status = fail_from_curl(client, request, code, &client->sink, error);
        dk_http_client_cancel(client);
        return status;
    }
    client->began_ns = now_ns();
    return DK_OK;
}

dk_status dk_http_client_end(struct dk_http_client *client, int curl_code, struct dk_http_response *out,
                             struct dk_error *error)
{
    uint64_t end_ns = now_ns();
    struct sink *sink = &client->sink;
    dk_status status;
    long http_status = 0;
    curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &http_status);
    if (curl_code != CURLE_OK)
        status = fail_from_curl(client, client->request, (CURLcode)curl_code, sink, error);
    else if (!sink_reserve(sink, sink->length))
        status = dk_fail(error, DK_NO_MEMORY, "no memory for an answer");
    else {
        sink->data[sink->length] = 0;
        status = http_status >= 200 && http_status < 300
                     ? DK_OK
                     : fail_from_answer(client->request, http_status, sink, error);
    }
    if (status == DK_OK) {
        *out = (struct dk_http_response){.http_status = http_status,
                                         .body = sink->data,
                                         .body_bytes = sink->length,
                                         .round_trip_ns = end_ns - client->began_ns};
        sink->data = NULL;
    }
    dk_http_client_cancel(client);
    return status;
}

void dk_http_client_cancel(struct dk_http_client *client)
{
    free(client->sink.data);
    client->sink = (struct sink){0};
    curl_slist_free_all(client->headers);
    client->headers = NULL;
    client->request = NULL;
}

void dk_http_client_set_timeout(struct dk_http_client *client, uint32_t timeout_ms)
{
    client->timeout_ms = timeout_ms < INT32_MAX ? (long)timeout_ms : INT32_MAX;
}

void *dk_http_client_easy(struct dk_http_client *client)
{
    return client->easy;
}

dk_status dk_http_client_send(struct dk_http_client *client, const struct dk_http_request *request,
                              struct dk_http_response *out, struct dk_error *error)
{
    dk_status status = dk_http_client_begin(client, request, error);
    if (status != DK_OK)
        return status;
    return dk_http_client_end(client, (int)curl_easy_perform(client->easy), out, error);
}

void dk_http_response_deinit(struct dk_http_response *response)
{
    free(response->body);
    *response = (struct dk_http_response){0};
}

const char *dk_http_client_header(struct dk_http_client *client, const char *name)
{
    struct curl_header *header = NULL;
    return curl_easy_header(client->easy, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK ? header->value
                                                                                           : NULL;
}
