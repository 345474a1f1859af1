/* http_page.h: the status page: its template, what fills it, and the files it names. */
#ifndef DK_SERVER_HTTP_PAGE_H
#define DK_SERVER_HTTP_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/json_writer.h"

struct dk_daemon;

/* Appends the value of slot `name` as HTML. False: no such slot. Thread: HTTP. */
bool dk_page_fill(struct dk_json_text *page, const struct dk_daemon *daemon, const char *name, size_t length);
/* The whole page for the daemon as it is now. */
void dk_page_write(struct dk_json_text *page, const struct dk_daemon *daemon);

#endif
