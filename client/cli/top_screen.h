/* top_screen.h: a terminal that is redrawn in place, its keys, and the signals that end or resize it. */
#ifndef DK_CLIENT_CLI_TOP_SCREEN_H
#define DK_CLIENT_CLI_TOP_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

#include "proto/status.h"

struct dk_top_screen {
    bool is_terminal; /* draw in place; else texts follow each other */
    bool has_keys;    /* standard input is one and was put into a mode that gives single keys */
    struct termios saved;
    int signal_fd;
};

/* Takes the signals that end a program, so that the terminal is always given back, and those of a resize.
 * Draws in place when standard output is a terminal and not `is_plain`. */
dk_status dk_top_screen_init(struct dk_top_screen *screen, bool is_plain, struct dk_error *error);
/* Gives the terminal back as it was. */
void dk_top_screen_deinit(struct dk_top_screen *screen);

/* Show `text`, cut to the terminal's columns and lines. False when standard output failed. */
bool dk_top_screen_show(const struct dk_top_screen *screen, const char *text);

enum dk_top_event { DK_TOP_TIME, DK_TOP_RESIZE, DK_TOP_QUIT };
/* Wait until `until_ns` of CLOCK_MONOTONIC, a resize, or the end: q, Ctrl-C, or a signal. */
enum dk_top_event dk_top_screen_wait(const struct dk_top_screen *screen, uint64_t until_ns);

/* The longest beginning of `text` that fits `columns` and `lines` when each line is cut; written to `out`,
 * which has room for strlen(text) + 1. Counts code points. */
void dk_top_clip(const char *text, size_t columns, size_t lines, char *out);

#endif
