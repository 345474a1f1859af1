/* checkpoint_file.c: read and scan a safetensors file. */
#include "client/checkpoint_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/file.h"

enum { SCAN_BYTES = 1 << 20 };

/* Read length word and header, as far as the file goes; the parser says what is wrong with either. */
static dk_status read_head(int fd, const char *path, uint64_t file_bytes, unsigned char **out,
                           size_t *out_length, struct dk_error *error)
{
    unsigned char word[8] = {0};
    size_t word_bytes = file_bytes < sizeof word ? (size_t)file_bytes : sizeof word;
    dk_status status = dk_file_pread(fd, path, word, word_bytes, 0, error);
    if (status != DK_OK)
        return status;
    uint64_t header_bytes = 0;
    for (int i = 0; i < 8; i++)
        header_bytes |= (uint64_t)word[i] << (8 * i);
    size_t length = word_bytes;
    if (word_bytes == sizeof word && header_bytes <= DK_ST_MAX_HEADER_BYTES && header_bytes <= file_bytes - 8)
        length += (size_t)header_bytes;
    unsigned char *bytes = malloc(length > 0 ? length : 1);
    if (!bytes)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the header of '%s' (%zu bytes)", path, length);
    if ((status = dk_file_pread(fd, path, bytes, length, 0, error)) != DK_OK) {
        free(bytes);
        return status;
    }
    *out = bytes;
    *out_length = length;
    return DK_OK;
}

dk_status dk_checkpoint_file_open(const char *path, struct dk_checkpoint_file *out, struct dk_error *error)
{
    struct dk_checkpoint_file file = {.path = path};
    dk_status status = dk_file_open_regular(path, &file.fd, &file.file_bytes, error);
    if (status != DK_OK)
        return status;
    unsigned char *bytes = NULL;
    size_t length = 0;
    if ((status = read_head(file.fd, path, file.file_bytes, &bytes, &length, error)) != DK_OK)
        goto close_file;
    struct dk_error reason;
    status = dk_st_index_parse(bytes, length, file.file_bytes, &file.index, &reason);
    free(bytes);
    if (status != DK_OK) {
        dk_fail(error, status, "'%s': %s", path, reason.message);
        goto close_file;
    }
    *out = file;
    return DK_OK;
close_file:
    close(file.fd);
    return status;
}

void dk_checkpoint_file_close(struct dk_checkpoint_file *file)
{
    dk_st_index_deinit(&file->index);
    close(file->fd);
}

/* --- values -------------------------------------------------------------------------------------------- */

/* The bits that decide: all exponent bits set means not finite, any fraction bit then means NaN. */
struct float_format {
    const char *name;
    size_t bytes;
    uint64_t exponent_mask, fraction_mask;
};

static const struct float_format *find_format(const char *dtype_name)
{
    static const struct float_format formats[] = {
        {"F64", 8, 0x7ff0000000000000, 0x000fffffffffffff},
        {"F32", 4, 0x7f800000, 0x007fffff},
        {"F16", 2, 0x7c00, 0x03ff},
        {"BF16", 2, 0x7f80, 0x007f},
    };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, dtype_name) == 0)
            return &formats[i];
    return NULL;
}

static void count_values(const struct float_format *format, const unsigned char *bytes, size_t length,
                         struct dk_value_counts *counts)
{
    for (size_t at = 0; at + format->bytes <= length; at += format->bytes) {
        uint64_t bits = 0; /* the format and this machine are both little-endian */
        memcpy(&bits, bytes + at, format->bytes);
        if ((bits & format->exponent_mask) != format->exponent_mask)
            continue;
        if (bits & format->fraction_mask)
            counts->nan_count++;
        else
            counts->infinite_count++;
    }
}

dk_status dk_checkpoint_file_scan(const struct dk_checkpoint_file *file, const struct dk_st_tensor *tensor,
                                  struct dk_value_counts *out, struct dk_error *error)
{
    struct dk_value_counts counts = {0};
    const struct float_format *format = find_format(tensor->dtype_name);
    if (!format) {
        *out = counts;
        return DK_OK;
    }
    counts.is_scanned = true;
    unsigned char *chunk = malloc(SCAN_BYTES);
    if (!chunk)
        return dk_fail(error, DK_NO_MEMORY, "no memory to scan '%s'", file->path);
    dk_status status = DK_OK;
    uint64_t length = tensor->end - tensor->begin;
    for (uint64_t done = 0; status == DK_OK && done < length;) {
        size_t part = length - done < SCAN_BYTES ? (size_t)(length - done) : SCAN_BYTES;
        status = dk_file_pread(file->fd, file->path, chunk, part, tensor->file_offset + done, error);
        if (status == DK_OK)
            count_values(format, chunk, part, &counts);
        done += part;
    }
    free(chunk);
    if (status == DK_OK)
        *out = counts;
    return status;
}
