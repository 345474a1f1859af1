/* bench_kernels_report.c: see bench_kernels_report.h. */
#include "tests/bench/bench_kernels_report.h"

#include <string.h>

/* The machine's own words on its state; nothing is changed. */
struct clocks {
    char line[256]; /* as nvidia-smi prints it */
    char name[64], driver[32], temperature[16], power[16];
    char sm_mhz[16], max_sm_mhz[16], memory_mhz[16];
};

static void read_clocks(struct clocks *out)
{
    *out = (struct clocks){.line = "nvidia-smi is missing"};
    FILE *pipe = popen("nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,"
                       "temperature.gpu,power.draw --format=csv,noheader,nounits -i 0 2>/dev/null",
                       "re");
    if (!pipe)
        return;
    if (fgets(out->line, sizeof out->line, pipe)) {
        out->line[strcspn(out->line, "\n")] = '\0';
        (void)sscanf(out->line, "%63[^,], %31[^,], %15[^,], %15[^,], %15[^,], %15[^,], %15s", out->name,
                     out->driver, out->sm_mhz, out->max_sm_mhz, out->memory_mhz, out->temperature,
                     out->power);
    }
    (void)pclose(pipe);
}

/* Names of devices and models hold neither controls nor non-ASCII; quotes and backslashes are escaped all the
 * same.
 */
static void put_text(FILE *json, const char *name, const char *text)
{
    fprintf(json, "\"%s\": \"", name);
    for (; *text; text++)
        fprintf(json, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('"', json);
}

static void put_clocks(const struct bench_report *report, const char *when)
{
    struct clocks clocks;
    read_clocks(&clocks);
    printf("%s: %s (name, driver, SM MHz, most, memory MHz, C, W)\n", when, clocks.line);
    if (report->csv)
        fprintf(report->csv, "# %s: %s\n", when, clocks.line);
    if (!report->json)
        return;
    const struct {
        const char *name, *text;
    } fields[] = {{"gpu", clocks.name},
                  {"driver", clocks.driver},
                  {"sm_mhz", clocks.sm_mhz},
                  {"max_sm_mhz", clocks.max_sm_mhz},
                  {"memory_mhz", clocks.memory_mhz},
                  {"celsius", clocks.temperature},
                  {"watts", clocks.power}};
    fprintf(report->json, "\"%s\": {", when);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        fputs(i > 0 ? ", " : "", report->json);
        put_text(report->json, fields[i].name, fields[i].text);
    }
    fputc('}', report->json);
}

static bool open_file(const char *path, FILE **out)
{
    *out = path ? fopen(path, "we") : NULL;
    if (path && !*out)
        fprintf(stderr, "bench_kernels: cannot write %s\n", path);
    return !path || *out;
}

bool bench_report_open(struct bench_report *out, const char *csv_path, const char *json_path)
{
    *out = (struct bench_report){0};
    return open_file(csv_path, &out->csv) && open_file(json_path, &out->json);
}

void bench_report_begin(const struct bench_report *report, const struct dk_engine_info *info,
                        const char *commit)
{
    printf("decomposek %s, commit %s\n%s\n", dk_version(), commit, info->reason);
    if (report->csv)
        fprintf(report->csv, "# decomposek %s, commit %s\n# %s\n", dk_version(), commit, info->reason);
    if (report->json) {
        fputs("{", report->json);
        put_text(report->json, "version", dk_version());
        fputs(", ", report->json);
        put_text(report->json, "commit", commit);
        fputs(", ", report->json);
        put_text(report->json, "device", info->device_name);
        fputs(", ", report->json);
        put_text(report->json, "cuda", info->runtime_version);
        fputs(",\n ", report->json);
    }
    put_clocks(report, "before");
    if (report->csv)
        fprintf(report->csv,
                "models,k,n,m,variant,split_k,chunk_k,pdl,invariant,built_in,cold_us,hot_us,pair_us,"
                "weight_gb_s\n");
    if (report->json)
        fputs(",\n \"results\": [", report->json);
}

void bench_report_add(struct bench_report *report, const struct bench_result *r)
{
    const struct bench_shape *shape = r->shape;
    double gb_s = 2.0 * shape->k * shape->n / r->cold_us / 1e3;
    if (report->csv)
        fprintf(report->csv, "\"%s\",%u,%u,%u,%s,%u,%u,%u,%u,%d,%.3f,%.3f,%.3f,%.0f\n", shape->models,
                shape->k, shape->n, r->m, r->plan->variant, r->plan->split_k, r->plan->chunk_k, r->pdl,
                r->invariant, r->is_built_in, r->cold_us, r->hot_us, r->pair_us, gb_s);
    if (!report->json)
        return;
    fputs(report->result_count++ > 0 ? ",\n  {" : "\n  {", report->json);
    put_text(report->json, "models", shape->models);
    fprintf(report->json, ", \"k\": %u, \"n\": %u, \"m\": %u, ", shape->k, shape->n, r->m);
    put_text(report->json, "variant", r->plan->variant);
    fprintf(report->json,
            ", \"split_k\": %u, \"chunk_k\": %u, \"pdl\": %s, \"invariant\": %s, \"built_in\": %s, "
            "\"cold_us\": %.3f",
            r->plan->split_k, r->plan->chunk_k, r->pdl ? "true" : "false", r->invariant ? "true" : "false",
            r->is_built_in ? "true" : "false", r->cold_us);
    if (r->hot_us > 0.0)
        fprintf(report->json, ", \"hot_us\": %.3f", r->hot_us);
    if (r->pair_us > 0.0)
        fprintf(report->json, ", \"pair_us\": %.3f", r->pair_us);
    fprintf(report->json, ", \"weight_gb_s\": %.0f}", gb_s);
}

static bool close_file(FILE *file)
{
    if (!file)
        return true;
    bool is_good = ferror(file) == 0;
    return fclose(file) == 0 && is_good;
}

bool bench_report_end(struct bench_report *report)
{
    if (report->json)
        fputs("\n ],\n ", report->json);
    put_clocks(report, "after");
    if (report->json)
        fputs("}\n", report->json);
    bool is_csv_good = close_file(report->csv);
    return close_file(report->json) && is_csv_good;
}
