/* metrics_process.c: what Prometheus' own client libraries tell about the process, from /proc. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/metrics_store.h"

static double seconds(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Seconds from boot to the start of this process: field 22 of /proc/self/stat; negative when unreadable. */
static double start_after_boot(void)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1.0;
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (length <= 0)
        return -1.0;
    text[length] = '\0';
    char *at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? -1.0 : (double)strtoull(at + 1, NULL, 10) / (double)sysconf(_SC_CLK_TCK);
}

void dk_metrics_process_open(struct dk_metrics *metrics)
{
    double started = start_after_boot();
    double age = started < 0.0 ? 0.0 : seconds(CLOCK_BOOTTIME) - started;
    metrics->start_time_seconds = seconds(CLOCK_REALTIME) - age;
    metrics->statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

static bool read_resident(int statm_fd, uint64_t *out)
{
    char text[128];
    ssize_t length = statm_fd < 0 ? -1 : pread(statm_fd, text, sizeof text - 1, 0);
    if (length <= 0)
        return false;
    text[length] = '\0';
    char *second = strchr(text, ' ');
    if (second == NULL)
        return false;
    *out = strtoull(second + 1, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}

static bool count_fds(uint64_t *out)
{
    /* Since Linux 6.2 the size of the folder is the count, and asking needs no descriptor. */
    struct stat info;
    if (stat("/proc/self/fd", &info) == 0 && info.st_size > 0) {
        *out = (uint64_t)info.st_size;
        return true;
    }
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return false;
    uint64_t count = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        count += entry->d_name[0] != '.';
    (void)closedir(folder);
    *out = count - 1; /* not the folder's own */
    return true;
}

void dk_metrics_process_read(const struct dk_metrics *metrics, struct dk_process_sample *out)
{
    struct rlimit limit;
    memset(out, 0, sizeof *out);
    out->has_resident = read_resident(metrics->statm_fd, &out->resident_bytes);
    out->has_open_fds = count_fds(&out->open_fds);
    out->has_max_fds = getrlimit(RLIMIT_NOFILE, &limit) == 0;
    out->max_fds = out->has_max_fds ? (uint64_t)limit.rlim_cur : 0;
    out->cpu_seconds = seconds(CLOCK_PROCESS_CPUTIME_ID);
}
