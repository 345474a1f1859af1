/* plan_cache.c: the entries in memory, and the tolerant parser and writer of their text form. */
#include "kernels/plan_cache.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan_cache_entries.h"

/* Bump when the meaning of a line changes: older files are then foreign. */
static const char magic[] = "decomposek-plans 1\n";

/* A stamp's text must stay on its line. */
static void copy_line(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text);
    for (char *at = out; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ')
            *at = ' ';
    }
}

void dk_plan_stamp_make(const struct dk_engine_info *info, struct dk_plan_stamp *out)
{
    copy_line(out->device, sizeof out->device, info->device_name);
    copy_line(out->isa, sizeof out->isa, info->isa);
    copy_line(out->driver, sizeof out->driver, info->driver_version);
    copy_line(out->runtime, sizeof out->runtime, info->runtime_version);
    copy_line(out->product, sizeof out->product, dk_version());
}

dk_status dk_plan_cache_new(const struct dk_plan_stamp *stamp, struct dk_plan_cache **out,
                            struct dk_error *error)
{
    struct dk_plan_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a plan cache");
    (void)snprintf(cache->header, sizeof cache->header,
                   "%sdevice %s\nisa %s\ndriver %s\nruntime %s\nproduct %s\n", magic, stamp->device,
                   stamp->isa, stamp->driver, stamp->runtime, stamp->product);
    *out = cache;
    return DK_OK;
}

void dk_plan_cache_free(struct dk_plan_cache *cache)
{
    free(cache);
}

size_t dk_plan_cache_count(const struct dk_plan_cache *cache)
{
    return cache->count;
}

static bool same_key(const struct dk_plan_key *a, const struct dk_plan_key *b)
{
    return a->n == b->n && a->k == b->k && a->bucket_rows == b->bucket_rows && a->a_dtype == b->a_dtype &&
           a->b_dtype == b->b_dtype && a->c_dtype == b->c_dtype && a->layout == b->layout &&
           a->epilogue == b->epilogue && a->is_pdl == b->is_pdl &&
           a->is_batch_invariant == b->is_batch_invariant;
}

static size_t find_index(const struct dk_plan_cache *cache, const struct dk_plan_key *key)
{
    size_t i = 0;
    while (i < cache->count && !same_key(&cache->entries[i].key, key))
        i++;
    return i;
}

bool dk_plan_cache_find(const struct dk_plan_cache *cache, const struct dk_plan_key *key,
                        struct dk_plan_choice *out)
{
    size_t index = find_index(cache, key);
    if (index == cache->count)
        return false;
    *out = cache->entries[index].choice;
    return true;
}

void dk_plan_cache_put(struct dk_plan_cache *cache, const struct dk_plan_key *key,
                       const struct dk_plan_choice *choice)
{
    size_t index = find_index(cache, key);
    if (index == DK_PLAN_CACHE_MAX_ENTRIES) {
        index = cache->oldest;
        cache->oldest = (cache->oldest + 1) % DK_PLAN_CACHE_MAX_ENTRIES;
    } else if (index == cache->count) {
        cache->count++;
    }
    cache->entries[index] = (struct dk_plan_entry){*key, *choice};
}

/* One line at a time: `at` moves on, `is_good` remembers that everything so far was as expected. */
struct line {
    const char *at, *end;
    bool is_good;
};

static void expect(struct line *line, const char *text)
{
    size_t length = strlen(text);
    if (!line->is_good || (size_t)(line->end - line->at) < length || memcmp(line->at, text, length) != 0)
        line->is_good = false;
    else
        line->at += length;
}

/* The word up to the next blank. */
static size_t word(struct line *line, const char *name, const char **out)
{
    expect(line, name);
    *out = line->at;
    while (line->is_good && line->at < line->end && *line->at != ' ')
        line->at++;
    size_t length = (size_t)(line->at - *out);
    if (length == 0)
        line->is_good = false;
    return length;
}

/* Plain digits: no sign, no blank, no leading zero games needed, at most `max`. */
static uint64_t number(struct line *line, const char *name, uint64_t min, uint64_t max)
{
    const char *text;
    size_t length = word(line, name, &text);
    uint64_t value = 0;
    for (size_t i = 0; line->is_good && i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || (value = value * 10 + (uint64_t)(text[i] - '0')) > max)
            line->is_good = false;
    }
    if (value < min)
        line->is_good = false;
    return value;
}

static dk_dtype dtype(struct line *line, const char *name)
{
    const char *text;
    dk_dtype value = DK_FP32;
    size_t length = word(line, name, &text);
    if (line->is_good &&
        (dk_dtype_parse(text, length, DK_DIALECT_NATIVE, &value) != DK_OK || !dk_dtype_is_float(value)))
        line->is_good = false;
    return value;
}

static void read_key(struct line *line, struct dk_plan_key *key)
{
    const char *text;
    key->n = number(line, "plan n=", 1, DK_MAX_N);
    key->k = number(line, " k=", 1, DK_MAX_K);
    key->a_dtype = dtype(line, " a=");
    key->b_dtype = dtype(line, " b=");
    key->c_dtype = dtype(line, " c=");
    size_t length = word(line, " layout=", &text);
    if (line->is_good && dk_layout_parse(text, length, &key->layout) != DK_OK)
        line->is_good = false;
    length = word(line, " epilogue=", &text);
    if (line->is_good && dk_epilogue_parse(text, length, &key->epilogue) != DK_OK)
        line->is_good = false;
    key->bucket_rows = (uint32_t)number(line, " rows=", 1, 65536);
    key->is_pdl = number(line, " pdl=", 0, 1) == 1;
    key->is_batch_invariant = number(line, " invariant=", 0, 1) == 1;
}

/* Values are plausible for the key; whether the plan exists only the backend knows. */
static void read_choice(struct line *line, const struct dk_plan_key *key, struct dk_plan_choice *choice)
{
    const char *text;
    size_t length = word(line, " variant=", &text);
    if (length >= sizeof choice->variant)
        line->is_good = false;
    for (size_t i = 0; line->is_good && i < length; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            line->is_good = false;
        choice->variant[i] = text[i];
    }
    choice->split_k = (uint32_t)number(line, " split=", 1, key->k);
    choice->chunk_k = (uint32_t)number(line, " chunk=", 1, DK_MAX_K);
    choice->tile_m = (uint32_t)number(line, " tile_m=", 1, 1 << 20);
    choice->tile_n = (uint32_t)number(line, " tile_n=", 1, 1 << 20);
    choice->is_dependent = number(line, " dependent=", 0, 1) == 1;
    choice->time_ns = number(line, " ns=", 1, UINT64_C(1) << 50);
    expect(line, " ."); /* a line that was cut anywhere lacks it */
    if (line->is_good && (line->at != line->end || (uint64_t)choice->chunk_k * choice->split_k < key->k))
        line->is_good = false;
}

static void note(struct dk_plan_cache_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(struct dk_plan_cache_report *report, const char *format, ...)
{
    struct dk_error clean;
    char text[sizeof report->warning];
    va_list arguments;
    if (report->warning[0] != '\0')
        return; /* the first cause is the one to tell */
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)dk_fail(&clean, DK_BAD_FILE, "%s",
                  text); /* bytes of a strange file must not reach a log as they are */
    (void)snprintf(report->warning, sizeof report->warning, "%s", clean.message);
}

/* Says which line of the header differs, the product's format or the place it was measured at. */
static void note_foreign(const struct dk_plan_cache *cache, const char *text, size_t length,
                         struct dk_plan_cache_report *report)
{
    const char *want = cache->header, *have = text, *end = text + length;
    while (true) {
        size_t want_length = strcspn(want, "\n");
        const char *stop = memchr(have, '\n', (size_t)(end - have));
        size_t have_length = stop ? (size_t)(stop - have) : (size_t)(end - have);
        if (have_length != want_length || memcmp(want, have, want_length) != 0 || !stop) {
            note(report, "made elsewhere or cut: found '%.*s', here it is '%.*s'",
                 (int)(have_length < 80 ? have_length : 80), have, (int)want_length, want);
            return;
        }
        want += want_length + 1;
        have = stop + 1;
    }
}

static void take_line(struct dk_plan_cache *cache, const char *text, size_t length,
                      struct dk_plan_cache_report *report)
{
    struct line line = {text, text + length, true};
    struct dk_plan_entry entry = {0};
    read_key(&line, &entry.key);
    read_choice(&line, &entry.key, &entry.choice);
    if (!line.is_good) {
        report->ignored_count++;
        note(report, "ignored a line that is no plan: '%.*s'", (int)(length < 100 ? length : 100), text);
    } else if (find_index(cache, &entry.key) == cache->count && cache->count < DK_PLAN_CACHE_MAX_ENTRIES) {
        cache->entries[cache->count++] = entry;
        report->taken_count++;
    }
}

void dk_plan_cache_parse(struct dk_plan_cache *cache, const char *text, size_t length,
                         struct dk_plan_cache_report *report)
{
    size_t header_length = strlen(cache->header);
    *report = (struct dk_plan_cache_report){0};
    if (length == 0) {
        note(report, "empty");
        return;
    }
    if (length < header_length || memcmp(text, cache->header, header_length) != 0) {
        note_foreign(cache, text, length, report);
        return;
    }
    const char *at = text + header_length, *end = text + length;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t line_length = stop ? (size_t)(stop - at) : (size_t)(end - at);
        take_line(cache, at, line_length, report);
        at += line_length + 1;
    }
}

bool dk_plan_cache_write(const struct dk_plan_cache *cache, FILE *file)
{
    (void)fputs(cache->header, file);
    for (size_t i = 0; i < cache->count; i++) {
        const struct dk_plan_key *key = &cache->entries[i].key;
        const struct dk_plan_choice *choice = &cache->entries[i].choice;
        (void)fprintf(file,
                      "plan n=%" PRIu64 " k=%" PRIu64 " a=%s b=%s c=%s layout=%s epilogue=%s rows=%" PRIu32
                      " pdl=%d invariant=%d variant=%s split=%" PRIu32 " chunk=%" PRIu32 " tile_m=%" PRIu32
                      " tile_n=%" PRIu32 " dependent=%d ns=%" PRIu64 " .\n",
                      key->n, key->k, dk_dtype_name(key->a_dtype, DK_DIALECT_NATIVE),
                      dk_dtype_name(key->b_dtype, DK_DIALECT_NATIVE),
                      dk_dtype_name(key->c_dtype, DK_DIALECT_NATIVE), dk_layout_name(key->layout),
                      dk_epilogue_name(key->epilogue), key->bucket_rows, key->is_pdl, key->is_batch_invariant,
                      choice->variant, choice->split_k, choice->chunk_k, choice->tile_m, choice->tile_n,
                      choice->is_dependent, choice->time_ns);
    }
    return fflush(file) == 0 && !ferror(file);
}
