/* config_options.c: one row per option: name, type, default, bounds, help; and the parsing of one value. */
#include "server/config_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const backend_names[] = {"auto", "cpu", "cuda", NULL};          /* dk_backend_kind */
static const char *const level_names[] = {"error", "warn", "info", "debug", NULL}; /* dk_log_level */
static const char *const format_names[] = {"kv", "json", NULL};                    /* dk_log_format */
static const char *const tune_names[] = {"off", "startup", "background", NULL};    /* dk_tune_mode */
static const char *const isa_names[] = {"auto", "avx512", "avx2", "portable", NULL};
_Static_assert(DK_BACKEND_AUTO == 0 && DK_BACKEND_CPU == 1 && DK_BACKEND_CUDA == 2, "backend_names");
_Static_assert(DK_TUNE_OFF == 0 && DK_TUNE_BACKGROUND == 2 && sizeof(enum dk_tune_mode) == sizeof(int),
               "tune_names");
_Static_assert(DK_LOG_ERROR == 0 && DK_LOG_DEBUG == 3, "level_names");
_Static_assert(DK_LOG_FORMAT_KV == 0 && DK_LOG_FORMAT_JSON == 1, "format_names");
_Static_assert(sizeof(dk_backend_kind) == sizeof(int) && sizeof(enum dk_log_level) == sizeof(int) &&
                   sizeof(enum dk_log_format) == sizeof(int),
               "a choice is stored as int");

#define AT(member) offsetof(struct dk_config, member)
#define MS_MAX     (24u * 3600u * 1000u)
#define SIZE_TOP   (UINT64_C(1) << 40)

const struct dk_option dk_options[] = {
    {"model", DK_OPTION_MODEL, 0, NULL, 0, 0, NULL, "NAME=FILE[,OPTION=VALUE...]",
     "Serve a weight of a safetensors file as NAME. Options: tensor=T (default: the only 2-D float tensor), "
     "bias=T (1-D, one value per column), layout=nk|kn (default nk, as nn.Linear), "
     "epilogue=none|relu|sigmoid. A comma in FILE or T is written \\, . May repeat"},
    {"host", DK_OPTION_STRING, AT(host), "127.0.0.1", 0, 0, NULL, "ADDRESS",
     "Address of HTTP: IPv4, IPv6 or a name; 0.0.0.0 for all of IPv4, :: for IPv6 and IPv4"},
    {"port", DK_OPTION_U16, AT(port), "8000", 0, 65535, NULL, "PORT",
     "TCP port of HTTP; 0 picks a free one, which is logged"},
    {"http-socket", DK_OPTION_STRING, AT(http_socket), NULL, 0, 0, NULL, "PATH",
     "Serve HTTP on this UNIX socket as well"},
    {"http-socket-mode", DK_OPTION_OCTAL, AT(http_socket_mode), "0660", 0, 0777, NULL, "MODE",
     "File mode of the UNIX socket, octal"},
    {"api-key-file", DK_OPTION_STRING, AT(api_key_file), NULL, 0, 0, NULL, "PATH",
     "Ask HTTP clients for a key of this file (one a line, any is good) as Authorization: Bearer KEY, on "
     "every "
     "route but /v2/health/*; read again at SIGHUP"},
    {"http-threads", DK_OPTION_U32, AT(http_threads), "0", 0, 256, NULL, "COUNT",
     "HTTP threads; 0: the online CPUs, at most 4"},
    {"max-connections", DK_OPTION_U32, AT(max_connections), "4096", 1, 1000000, NULL, "COUNT",
     "Open HTTP connections; more wait or are closed"},
    {"max-in-flight", DK_OPTION_U32, AT(max_in_flight), "1024", 1, 65536, NULL, "COUNT",
     "Admitted requests without an answer yet; more are answered 503"},
    {"header-timeout-ms", DK_OPTION_U32, AT(header_timeout_ms), "10000", 1, MS_MAX, NULL, "MS",
     "Time for the whole header block of a request"},
    {"body-timeout-ms", DK_OPTION_U32, AT(body_timeout_ms), "60000", 1, MS_MAX, NULL, "MS",
     "Time for the whole body of a request, and as much again for a client to read the answer"},
    {"idle-timeout-ms", DK_OPTION_U32, AT(idle_timeout_ms), "75000", 1, MS_MAX, NULL, "MS",
     "Time a connection may stay open between requests"},
    {"max-body-bytes", DK_OPTION_SIZE, AT(max_body_bytes), "0", 0, SIZE_TOP, NULL, "SIZE",
     "Largest request body; 0: the largest tensor of --max-tokens rows and 1 MiB"},
    {"queue-depth", DK_OPTION_U32, AT(queue_depth), "1024", 1, 65536, NULL, "COUNT",
     "Jobs waiting for the executor; more are answered 503"},
    {"small-slabs", DK_OPTION_U32, AT(small_slab_count), "64", 1, 65536, NULL, "COUNT",
     "Preallocated request buffers of --small-slab-rows rows"},
    {"small-slab-rows", DK_OPTION_U32, AT(small_slab_rows), "64", 1, 65536, NULL, "ROWS",
     "Rows of one small request buffer"},
    {"large-slabs", DK_OPTION_U32, AT(large_slab_count), "4", 1, 1024, NULL, "COUNT",
     "Preallocated request buffers for the largest body"},
    {"adhoc-max-bytes", DK_OPTION_SIZE, AT(adhoc_max_bytes), "64MiB", 0, SIZE_TOP, NULL, "SIZE",
     "Largest B of a product without a model; 0 switches such products off"},
    {"shm-socket", DK_OPTION_STRING, AT(shm_socket), NULL, 0, 0, NULL, "PATH",
     "Let clients on this machine share memory with the daemon; they ask for it on this UNIX socket"},
    {"shm-socket-mode", DK_OPTION_OCTAL, AT(shm_socket_mode), "0660", 0, 0777, NULL, "MODE",
     "File mode of that socket, octal"},
    {"shm-allow-uid", DK_OPTION_IDS, AT(shm_allow_uid), NULL, 0, 0, NULL, "LIST",
     "Users that may share memory beside root and the daemon's own: numbers with commas, or any"},
    {"shm-allow-gid", DK_OPTION_IDS, AT(shm_allow_gid), NULL, 0, 0, NULL, "LIST",
     "Groups whose members may share memory: numbers with commas, or any"},
    {"shm-sessions", DK_OPTION_U32, AT(shm_sessions), "64", 1, 4096, NULL, "COUNT",
     "Clients that share memory at once; more are refused"},
    {"shm-session-bytes", DK_OPTION_SIZE, AT(shm_session_bytes), "256MiB", 1u << 16, SIZE_TOP, NULL, "SIZE",
     "Shared memory of one client, weights that it pushed included"},
    {"shm-total-bytes", DK_OPTION_SIZE, AT(shm_total_bytes), "1GiB", 1u << 16, SIZE_TOP, NULL, "SIZE",
     "The same of all clients together"},
    {"shm-load-models", DK_OPTION_BOOL, AT(shm_load_models), "false", 0, 0, NULL, NULL,
     "Clients that share memory may push weights for their own use"},
    {"allow-model-control", DK_OPTION_BOOL, AT(allow_model_control), "false", 0, 0, NULL, NULL,
     "Let HTTP clients change what is served: /v2/repository, PUT and DELETE of /v1/models/NAME; better "
     "together with --api-key-file"},
    {"max-upload-bytes", DK_OPTION_SIZE, AT(max_upload_bytes), "1GiB", 1, SIZE_TOP, NULL, "SIZE",
     "Largest safetensors file of an upload; it is held in memory, one at a time"},
    {"max-models", DK_OPTION_U32, AT(max_models), "256", 1, DK_MAX_MODELS, NULL, "COUNT",
     "Models that serve at once, uploaded ones among them"},
    {"workspace-bytes", DK_OPTION_SIZE, AT(workspace_bytes), "0", 0, SIZE_TOP, NULL, "SIZE",
     "Least memory for partial sums, for models that are to come by upload; 0: what the models given here "
     "need"},
    {"allow-client-shm", DK_OPTION_BOOL, AT(allow_client_shm), "false", 0, 0, NULL, NULL,
     "Let HTTP clients register shared-memory objects of this machine (/v2/systemsharedmemory): any object "
     "in "
     "/dev/shm that this server's user may read and write"},
    {"max-client-regions", DK_OPTION_U32, AT(max_client_regions), "256", 1, 65536, NULL, "COUNT",
     "Registered shared-memory regions of clients; each keeps a descriptor"},
    {"backend", DK_OPTION_CHOICE, AT(backend), "auto", 0, 0, backend_names, "NAME",
     "Where products are computed; auto takes CUDA when its plugin loads and a device answers, else the CPU"},
    {"device", DK_OPTION_INT, AT(device_index), "0", 0, 1023, NULL, "INDEX", "CUDA device"},
    {"threads", DK_OPTION_U32, AT(threads), "0", 0, 1024, NULL, "COUNT",
     "CPU backend: compute threads; 0: the CPUs this process may run on"},
    {"max-tokens", DK_OPTION_U32, AT(max_tokens), "4096", 1, 65536, NULL, "ROWS",
     "Rows of one launch, rounded up to a plan bucket; a longer request is cut into pieces"},
    {"spin-us", DK_OPTION_U32, AT(spin_us), "0", 0, 1000000, NULL, "US",
     "How long the executor and the compute threads look for work before they sleep; 0: 50, but the executor "
     "not "
     "at all unless a CPU is left beside the compute threads for it and one for HTTP"},
    {"cpu-blas", DK_OPTION_BOOL, AT(use_blas), "false", 0, 0, NULL, NULL,
     "CPU backend: allow OpenBLAS where it is faster; the bits of a row may then depend on its batch"},
    {"cpu-isa", DK_OPTION_NAME, AT(cpu_isa), "auto", 0, 0, isa_names, "NAME",
     "CPU backend: instruction set; auto takes the best of this machine"},
    {"cuda-plugin", DK_OPTION_STRING, AT(plugin_path), NULL, 0, 0, NULL, "PATH",
     "File of the CUDA plugin; default: libdecomposek_cuda.so where the loader finds it"},
    {"tune", DK_OPTION_CHOICE, AT(tune), "off", 0, 0, tune_names, "WHEN",
     "Measure plans for models the plan cache does not know: off, built-in plans serve; startup, before the "
     "daemon "
     "is ready; background, while it serves: they are used from the next start or reload on, and a request "
     "may "
     "wait for a measurement"},
    {"plan-cache", DK_OPTION_STRING, AT(plan_cache), NULL, 0, 0, NULL, "PATH",
     "File of measured plans: read at the start, written after measuring; off for none. Default: "
     "$XDG_CACHE_HOME/decomposek/plans, else $HOME/.cache/decomposek/plans. What is odd in it is ignored"},
    {"batch-invariant", DK_OPTION_BOOL, AT(is_batch_invariant), "false", 0, 0, NULL, NULL,
     "CUDA: a row's bits do not depend on how many rows come with it, up to 64"},
    {"drain-grace-ms", DK_OPTION_U32, AT(drain_grace_ms), "1000", 0, MS_MAX, NULL, "MS",
     "After SIGTERM: time to go on serving while readiness is 503"},
    {"drain-limit-ms", DK_OPTION_U32, AT(drain_limit_ms), "30000", 0, MS_MAX, NULL, "MS",
     "After the grace: time for accepted work to finish; then exit 1"},
    {"log-level", DK_OPTION_CHOICE, AT(log_level), "info", 0, 0, level_names, "LEVEL",
     "Least severe level that is logged"},
    {"log-format", DK_OPTION_CHOICE, AT(log_format), "kv", 0, 0, format_names, "FORMAT",
     "Log lines as key=value or JSON, on stderr"},
    {"check-config", DK_OPTION_BOOL, AT(check_only), "false", 0, 0, NULL, NULL,
     "Load everything, serve nothing, exit"},
    {"config", DK_OPTION_CONFIG, 0, NULL, 0, 0, NULL, "FILE", "Read options from FILE"},
    {"help", DK_OPTION_HELP, 0, NULL, 0, 0, NULL, NULL, "Print this text"},
    {"version", DK_OPTION_VERSION, 0, NULL, 0, 0, NULL, NULL, "Print the version"},
};
const size_t dk_option_count = sizeof dk_options / sizeof dk_options[0];

const struct dk_option *dk_option_find(const char *name, size_t length)
{
    for (size_t i = 0; i < dk_option_count; i++) {
        if (strlen(dk_options[i].name) == length && memcmp(dk_options[i].name, name, length) == 0)
            return &dk_options[i];
    }
    return NULL;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Edits (insert, delete, replace, swap of neighbours) between two short names. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    enum { LIMIT = 40 };
    size_t rows[3][LIMIT + 1]; /* of a: this one and the two before */
    if (a_length > LIMIT || b_length > LIMIT)
        return SIZE_MAX;
    for (size_t i = 0; i <= a_length; i++) {
        size_t *row = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            if (i == 0) {
                row[j] = j;
                continue;
            }
            row[j] = min3(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two_before[j - 2] < row[j])
                row[j] = two_before[j - 2] + 1;
        }
    }
    return rows[a_length % 3][b_length];
}

const struct dk_option *dk_option_nearest(const char *name, size_t length)
{
    const struct dk_option *nearest = NULL;
    size_t best = length / 3 < 2 ? length / 3 + 1 : 3; /* one above what still counts as near */
    for (size_t i = 0; i < dk_option_count; i++) {
        size_t distance = edit_distance(name, length, dk_options[i].name, strlen(dk_options[i].name));
        if (distance < best) {
            best = distance;
            nearest = &dk_options[i];
        }
    }
    return nearest;
}

void dk_option_variable(const struct dk_option *option, char *out, size_t size)
{
    (void)snprintf(out, size, "DECOMPOSEK_%s", option->name);
    for (char *at = out; *at != '\0'; at++) {
        if (*at == '-')
            *at = '_';
        else if (*at >= 'a' && *at <= 'z')
            *at = (char)(*at - 'a' + 'A');
    }
}

static void list_choices(const char *const *choices, char *out, size_t size)
{
    size_t length = 0;
    for (size_t i = 0; choices[i] != NULL && length < size; i++) {
        const char *between = i == 0 ? "" : choices[i + 1] == NULL ? " or " : ", ";
        length += (size_t)snprintf(out + length, size - length, "%s%s", between, choices[i]);
    }
}

void dk_option_allowed(const struct dk_option *option, char *out, size_t size)
{
    switch (option->kind) {
    case DK_OPTION_U16:
    case DK_OPTION_U32:
    case DK_OPTION_INT:
        (void)snprintf(out, size, "%llu..%llu", (unsigned long long)option->min,
                       (unsigned long long)option->max);
        break;
    case DK_OPTION_SIZE:
        (void)snprintf(out, size, "%llu..%lluG bytes, with K, M, G or KiB, MiB, GiB",
                       (unsigned long long)option->min, (unsigned long long)(option->max >> 30));
        break;
    case DK_OPTION_OCTAL:
        (void)snprintf(out, size, "octal 0..%llo", (unsigned long long)option->max);
        break;
    case DK_OPTION_IDS:
        (void)snprintf(out, size, "any, or up to %d numbers with commas between", DK_MAX_IDS);
        break;
    case DK_OPTION_BOOL:
        (void)snprintf(out, size, "true or false");
        break;
    case DK_OPTION_NAME:
    case DK_OPTION_CHOICE:
        list_choices(option->choices, out, size);
        break;
    default:
        (void)snprintf(out, size, "a text that is not empty");
    }
}

/* Digits of `base` only: no sign, no blanks, no locale. Returns the first byte behind, NULL on overflow or
 * when there is no digit. */
static const char *scan_digits(const char *text, unsigned base, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at < (char)('0' + base); at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (value > (UINT64_MAX - digit) / base)
            return NULL;
        value = value * base + digit;
    }
    *out = value;
    return at == text ? NULL : at;
}

static bool scan_suffix(const char *text, unsigned *shift)
{
    static const char letters[] = "KMGT";
    *shift = 0;
    if (*text == '\0')
        return true;
    char upper = *text >= 'a' && *text <= 'z' ? (char)(*text - 'a' + 'A') : *text;
    const char *at = strchr(letters, upper);
    if (at == NULL || *at == '\0')
        return false;
    *shift = 10 * (unsigned)(at - letters + 1);
    return text[1] == '\0' || strcmp(text + 1, "iB") == 0 || strcmp(text + 1, "i") == 0;
}

static bool parse_number(const struct dk_option *option, const char *value, uint64_t *out)
{
    unsigned shift = 0;
    uint64_t number = 0;
    const char *end = scan_digits(value, option->kind == DK_OPTION_OCTAL ? 8 : 10, &number);
    if (end == NULL)
        return false;
    if (option->kind == DK_OPTION_SIZE ? !scan_suffix(end, &shift) : *end != '\0')
        return false;
    if (number > UINT64_MAX >> shift || number << shift < option->min || number << shift > option->max)
        return false;
    *out = number << shift;
    return true;
}

static bool parse_choice(const char *const *choices, const char *value, size_t *out)
{
    for (size_t i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], value) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool parse_bool(const char *value, bool *out)
{
    static const char *const texts[] = {"false", "true", "0", "1", "no", "yes", "off", "on", NULL};
    size_t index = 0;
    if (!parse_choice(texts, value, &index))
        return false;
    *out = index % 2 == 1;
    return true;
}

/* Keeps a copy of `value` for the life of the config. */
static const char *own_string(struct dk_config_owner *owner, const char *value)
{
    char **grown = reallocarray(owner->strings, owner->string_count + 1, sizeof *grown);
    if (grown == NULL)
        return NULL;
    owner->strings = grown;
    char *copy = strdup(value);
    if (copy != NULL)
        owner->strings[owner->string_count++] = copy;
    return copy;
}

static dk_status store_string(struct dk_config_owner *owner, void *member, const char *value,
                              struct dk_error *error)
{
    const char *copy = own_string(owner, value);
    if (copy == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the configuration");
    memcpy(member, &copy, sizeof copy);
    return DK_OK;
}

/* Stores `value` in `member`; false, and nothing stored, when it is not allowed. */
static bool store_number(const struct dk_option *option, const char *value, void *member)
{
    uint64_t number = 0;
    if (!parse_number(option, value, &number))
        return false;
    if (option->kind == DK_OPTION_SIZE)
        memcpy(member, &number, sizeof number);
    else if (option->kind == DK_OPTION_U16)
        memcpy(member, &(uint16_t){(uint16_t)number}, sizeof(uint16_t));
    else
        memcpy(member, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
    return true;
}

static bool store_choice(const struct dk_option *option, const char *value, void *member)
{
    size_t index = 0;
    if (!parse_choice(option->choices, value, &index))
        return false;
    if (option->kind == DK_OPTION_CHOICE)
        memcpy(member, &(int){(int)index}, sizeof(int));
    else /* the table's own text; index 0 is "auto" */
        memcpy(member, &(const char *){index == 0 ? NULL : option->choices[index]}, sizeof(char *));
    return true;
}

dk_status dk_option_apply(struct dk_config_owner *owner, const struct dk_option *option, const char *value,
                          const struct dk_config_source *source, struct dk_error *error)
{
    void *member = (char *)&owner->config + option->offset;
    bool is_allowed = false;
    if (option->kind == DK_OPTION_MODEL)
        return dk_config_add_model(owner, value, source, error);
    if (option->kind == DK_OPTION_STRING && *value != '\0')
        return store_string(owner, member, value, error);
    if (option->kind <= DK_OPTION_OCTAL)
        is_allowed = store_number(option, value, member);
    else if (option->kind == DK_OPTION_BOOL)
        is_allowed = parse_bool(value, member);
    else if (option->kind == DK_OPTION_IDS)
        is_allowed = dk_config_parse_ids(value, member);
    else if (option->kind == DK_OPTION_NAME || option->kind == DK_OPTION_CHOICE)
        is_allowed = store_choice(option, value, member);
    if (is_allowed)
        return DK_OK;
    char allowed[128];
    dk_option_allowed(option, allowed, sizeof allowed);
    return dk_fail(error, DK_BAD_VALUE, "%s: '%s' is not allowed; expected %s", source->text, value, allowed);
}
