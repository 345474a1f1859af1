/* top_screen.c: raw keys, the alternate screen and signals for `decomposek top`. */
#include "client/cli/top_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/load.h"

/* Alternate screen without cursor, and back. */
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
/* To the top left; what follows is drawn over the old text, each line cleared to its end. */
#define HOME        "\033[H"
#define CLEAR_LINE  "\033[K"
#define CLEAR_BELOW "\033[J"

dk_status dk_top_screen_init(struct dk_top_screen *screen, bool is_plain, struct dk_error *error)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGWINCH);
    *screen = (struct dk_top_screen){.is_terminal = !is_plain && isatty(STDOUT_FILENO) == 1};
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0 ||
        (screen->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return dk_fail(error, DK_IO_ERROR, "cannot take signals: %s", strerrordesc_np(errno));
    if (screen->is_terminal && isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &screen->saved) == 0) {
        struct termios raw = screen->saved;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        screen->has_keys = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    if (screen->is_terminal)
        fputs(ENTER, stdout);
    return DK_OK;
}

void dk_top_screen_deinit(struct dk_top_screen *screen)
{
    if (screen->is_terminal) {
        fputs(LEAVE, stdout);
        (void)fflush(stdout);
    }
    if (screen->has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &screen->saved); /* what else could be done with it */
    close(screen->signal_fd);
}

void dk_top_clip(const char *text, size_t columns, size_t lines, char *out)
{
    size_t column = 0, line = 0;
    bool is_cut = false; /* the rest of this line is left out */
    for (; *text && line < lines; text++) {
        bool is_begin = ((unsigned char)*text & 0xC0) != 0x80;
        if (*text == '\n') {
            line++;
            column = 0;
            is_cut = false;
            if (line == lines)
                break; /* no line feed after the last: it would scroll */
        } else if (is_begin) {
            is_cut = column == columns;
            column += !is_cut;
        }
        if (!is_cut)
            *out++ = *text;
    }
    *out = '\0';
}

bool dk_top_screen_show(const struct dk_top_screen *screen, const char *text)
{
    struct winsize size;
    if (!screen->is_terminal)
        return fputs(text, stdout) >= 0 && fputc('\n', stdout) >= 0 && fflush(stdout) == 0;
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    char *clipped = malloc(strlen(text) + 1);
    if (!clipped)
        return false;
    dk_top_clip(text, is_known ? size.ws_col : 80, is_known ? size.ws_row : 24, clipped);
    fputs(HOME, stdout);
    for (const char *at = clipped; *at; at++) {
        if (*at == '\n')
            fputs(CLEAR_LINE "\r", stdout);
        fputc(*at, stdout);
    }
    free(clipped);
    fputs(CLEAR_LINE CLEAR_BELOW, stdout);
    return fflush(stdout) == 0;
}

/* True when a key or signal ends it; *is_resized when the terminal changed. */
static bool take_input(const struct dk_top_screen *screen, const struct pollfd polled[2], bool *is_resized)
{
    struct signalfd_siginfo info;
    char key = 0;
    if (polled[0].revents & POLLIN)
        while (read(screen->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
            if (info.ssi_signo != SIGWINCH)
                return true;
            *is_resized = true;
        }
    if (polled[1].revents & POLLIN)
        while (read(STDIN_FILENO, &key, 1) == 1)
            if (key == 'q' || key == 'Q' || key == 3) /* Ctrl-C without its signal */
                return true;
    return (polled[1].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0; /* the terminal is gone */
}

enum dk_top_event dk_top_screen_wait(const struct dk_top_screen *screen, uint64_t until_ns)
{
    struct pollfd polled[2] = {{.fd = screen->signal_fd, .events = POLLIN},
                               {.fd = screen->has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    for (;;) {
        uint64_t now_ns = dk_load_now_ns();
        if (now_ns >= until_ns)
            return DK_TOP_TIME;
        uint64_t left_ns = until_ns - now_ns;
        const struct timespec timeout = {(time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u)};
        bool is_resized = false;
        if (ppoll(polled, 2, &timeout, NULL) > 0 && take_input(screen, polled, &is_resized))
            return DK_TOP_QUIT;
        if (is_resized)
            return DK_TOP_RESIZE;
    }
}
