/* infer_report.c: an answer as text, JSON or file. */
#include "client/cli/infer_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/file.h"
#include "client/json_add.h"
#include "client/npy.h"

enum { SHOWN_VALUES = 6, SHOWN_ROWS = 3 };

double dk_quantile(const double *sorted, size_t count, double q)
{
    double rank = ceil(q * (double)count);
    size_t index = rank < 1 ? 0 : (size_t)rank - 1;
    return sorted[index < count ? index : count - 1];
}

/* --- text ---------------------------------------------------------------------------------------------- */

static void print_rows(const struct dk_remote_reply *reply, FILE *stream)
{
    for (uint64_t row = 0; row < reply->rows && row < SHOWN_ROWS; row++) {
        size_t count = reply->n < SHOWN_VALUES ? (size_t)reply->n : SHOWN_VALUES;
        const char *from = (const char *)reply->y + row * reply->n * dk_dtype_bytes(reply->dtype);
        float values[SHOWN_VALUES];
        dk_convert_to_float(from, reply->dtype, values, count);
        fprintf(stream, "y[%llu]:", (unsigned long long)row);
        for (size_t i = 0; i < count; i++)
            fprintf(stream, " %.6g", (double)values[i]);
        fputs(count < reply->n ? " ...\n" : "\n", stream);
    }
    if (reply->rows > SHOWN_ROWS)
        fprintf(stream, "... %llu rows more\n", (unsigned long long)(reply->rows - SHOWN_ROWS));
}

static void print_time(const char *name, double value_us, FILE *stream)
{
    if (isnan(value_us))
        fprintf(stream, " %s -", name);
    else
        fprintf(stream, " %s %.1f", name, value_us);
}

void dk_infer_report_text(const struct dk_infer_report *report, FILE *stream)
{
    const struct dk_remote_request *request = report->request;
    const struct dk_remote_reply *reply = report->reply;
    fprintf(stream, "model %s: x [%llu, %llu] %s -> y [%llu, %llu] %s\n", request->model->name,
            (unsigned long long)request->rows, (unsigned long long)request->model->k,
            dk_dtype_name(request->dtype, DK_DIALECT_NATIVE), (unsigned long long)reply->rows,
            (unsigned long long)reply->n, dk_dtype_name(reply->dtype, DK_DIALECT_NATIVE));
    print_rows(reply, stream);
    fputs("timing_us:", stream);
    print_time("queue", reply->timing.queue_us, stream);
    print_time("kernel", reply->timing.kernel_us, stream);
    print_time("total", reply->timing.total_us, stream);
    print_time("round_trip", reply->timing.round_trip_us, stream);
    fputc('\n', stream);
    if (reply->plan.variant[0])
        fprintf(stream, "plan: bucket %llu, variant %s, split_k %llu, pieces %llu, backend %s\n",
                (unsigned long long)reply->plan.bucket, reply->plan.variant,
                (unsigned long long)reply->plan.split_k, (unsigned long long)reply->plan.pieces,
                reply->plan.backend[0] ? reply->plan.backend : "-");
    if (report->round_trips_us) {
        const double *sorted = report->round_trips_us;
        size_t count = report->round_trip_count;
        fprintf(stream, "round_trip_us of %zu: min %.1f p50 %.1f p90 %.1f p99 %.1f max %.1f\n", count,
                sorted[0], dk_quantile(sorted, count, 0.50), dk_quantile(sorted, count, 0.90),
                dk_quantile(sorted, count, 0.99), sorted[count - 1]);
    }
    if (report->output)
        fprintf(stream, "y written to %s\n",
                strcmp(report->output, "-") == 0 ? "standard output" : report->output);
}

/* --- JSON ---------------------------------------------------------------------------------------------- */

static void add_head(struct dk_json_text *text, const struct dk_infer_report *report)
{
    const struct dk_remote_reply *reply = report->reply;
    dk_json_add_text(text, "{\"model\":", report->request->model->name);
    dk_json_add_u64(text, ",\"shape\":[", reply->rows);
    dk_json_add_u64(text, ",", reply->n);
    dk_json_add_text(text, "],\"dtype\":", dk_dtype_name(reply->dtype, DK_DIALECT_NATIVE));
    dk_json_add_double(text, ",\"timing_us\":{\"queue\":", reply->timing.queue_us);
    dk_json_add_double(text, ",\"kernel\":", reply->timing.kernel_us);
    dk_json_add_double(text, ",\"total\":", reply->timing.total_us);
    dk_json_add_double(text, ",\"round_trip\":", reply->timing.round_trip_us);
    dk_json_add_u64(text, "},\"plan\":{\"bucket\":", reply->plan.bucket);
    dk_json_add_text(text, ",\"variant\":", reply->plan.variant);
    dk_json_add_u64(text, ",\"split_k\":", reply->plan.split_k);
    dk_json_add_u64(text, ",\"pieces\":", reply->plan.pieces);
    dk_json_add_text(text, ",\"backend\":", reply->plan.backend);
    dk_json_text_raw(text, "}");
    if (report->round_trips_us) {
        const double *sorted = report->round_trips_us;
        size_t count = report->round_trip_count;
        dk_json_add_u64(text, ",\"round_trip_us\":{\"count\":", count);
        dk_json_add_double(text, ",\"min\":", sorted[0]);
        dk_json_add_double(text, ",\"p50\":", dk_quantile(sorted, count, 0.50));
        dk_json_add_double(text, ",\"p90\":", dk_quantile(sorted, count, 0.90));
        dk_json_add_double(text, ",\"p99\":", dk_quantile(sorted, count, 0.99));
        dk_json_add_double(text, ",\"max\":", sorted[count - 1]);
        dk_json_text_raw(text, "}");
    }
    if (report->output)
        dk_json_add_text(text, ",\"output\":", report->output);
}

bool dk_infer_report_json(const struct dk_infer_report *report, FILE *stream)
{
    const struct dk_remote_reply *reply = report->reply;
    struct dk_json_text text = {0};
    add_head(&text, report);
    bool is_complete = !text.failed;
    if (is_complete)
        fputs(text.data, stream);
    dk_json_text_free(&text);
    if (!is_complete)
        return false;
    if (!report->output) {
        struct dk_json_tensor_writer writer;
        dk_json_tensor_writer_init(&writer, reply->y, reply->dtype, reply->rows, reply->n, true);
        fputs(",\"y\":", stream);
        char part[4096];
        for (size_t length; (length = dk_json_tensor_writer_next(&writer, part, sizeof part)) > 0;)
            fwrite(part, 1, length, stream);
    }
    fputs("}\n", stream);
    return true;
}

/* --- file ---------------------------------------------------------------------------------------------- */

dk_status dk_infer_write_output(const struct dk_remote_reply *reply, const char *path, bool is_raw,
                                struct dk_error *error)
{
    size_t length = strlen(path);
    bool is_npy =
        !is_raw && (strcmp(path, "-") == 0 || (length >= 4 && strcmp(path + length - 4, ".npy") == 0));
    if (!is_npy)
        return dk_file_write(path, NULL, 0, reply->y, reply->y_bytes, error);
    char header[DK_NPY_HEADER_BYTES];
    if (reply->dtype != DK_BF16) {
        dk_npy_header(header, reply->dtype, reply->rows, reply->n);
        return dk_file_write(path, header, sizeof header, reply->y, reply->y_bytes, error);
    }
    size_t count = reply->y_bytes / sizeof(uint16_t);
    float *wide = malloc(count * sizeof *wide + 1);
    if (!wide)
        return dk_fail(error, DK_NO_MEMORY, "no memory to widen the answer to fp32");
    dk_convert_to_float(reply->y, reply->dtype, wide, count);
    dk_npy_header(header, DK_FP32, reply->rows, reply->n);
    dk_status status = dk_file_write(path, header, sizeof header, wide, count * sizeof *wide, error);
    free(wide);
    return status;
}
