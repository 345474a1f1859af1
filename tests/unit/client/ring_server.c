/* ring_server.c: accept, shake hands, serve until told otherwise. */
#include "tests/unit/client/ring_server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

struct session {
    struct ring_server *server;
    int fd, memory_fd, doorbell_fd;
    struct dk_ring_layout layout;
    struct dk_ring ring;
    void *mapping;
    uint32_t head, tail; /* submissions taken, completions given */
    struct dk_ring_submission held[DK_RING_MAX_ENTRIES];
    uint32_t held_count;
    bool has_said_goodbye;
};

/* --- messages ------------------------------------------------------------------------------------------ */

static void send_packet(int fd, const union dk_shm_packet *packet, size_t length, const int *fds,
                        size_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = length};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    }
    (void)sendmsg(fd, &header, MSG_NOSIGNAL);
}

static void send_failure(int fd, enum dk_shm_kind kind, uint32_t status, const char *text)
{
    union dk_shm_packet packet;
    size_t length = dk_shm_begin(&packet, kind);
    packet.failure.status = status;
    strcpy(packet.failure.text, text);
    send_packet(fd, &packet, length, NULL, 0);
}

/* False at the end of file, or when the server is to stop or to die. */
static bool receive_packet(struct session *session, union dk_shm_packet *packet)
{
    struct pollfd polled = {.fd = session->fd, .events = POLLIN};
    while (!session->server->stops && !session->server->dies) {
        if (poll(&polled, 1, 1) <= 0)
            continue;
        ssize_t got = recv(session->fd, packet, sizeof *packet, 0);
        struct dk_error error;
        return got > 0 && dk_shm_check(packet, (size_t)got, DK_SHM_CLIENT, &error) == DK_OK;
    }
    return false;
}

static void wait_for_the_end(struct session *session)
{
    union dk_shm_packet packet;
    while (receive_packet(session, &packet))
        ;
}

/* --- the beginning ------------------------------------------------------------------------------------- */

static void make_memory(struct session *session, int fault)
{
    size_t bytes = session->layout.mapping_bytes;
    session->memory_fd = memfd_create("ring-server", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    session->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ftruncate(session->memory_fd, (off_t)bytes) != 0)
        abort();
    session->mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->memory_fd, 0);
    if (session->mapping == MAP_FAILED)
        abort();
    session->ring = dk_ring_at(session->mapping, &session->layout);
    dk_ring_format(session->mapping, &session->layout);
    if (fault == RING_FAULT_HEADER)
        session->ring.header->data_bytes++;
    if (fault == RING_FAULT_SHORT && ftruncate(session->memory_fd, 4096) != 0)
        abort();
    if (fault != RING_FAULT_UNSEALED)
        fcntl(session->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
}

static void welcome(struct session *session, int fault)
{
    union dk_shm_packet packet;
    int pipe_fds[2] = {-1, -1};
    size_t length = dk_shm_begin(&packet, DK_SHM_WELCOME), count = 2;
    int fds[3] = {session->memory_fd, session->doorbell_fd, session->doorbell_fd};
    packet.welcome.layout = session->layout;
    packet.welcome.can_load_models = 1;
    if (fault == RING_FAULT_LAYOUT)
        packet.welcome.layout.data_offset += 4096;
    if (fault == RING_FAULT_VERSION)
        packet.message.version++;
    if (fault == RING_FAULT_NO_DESCRIPTORS)
        count = 0;
    if (fault == RING_FAULT_MANY_DESCRIPTORS)
        count = 3;
    if (fault == RING_FAULT_PIPE) {
        if (pipe(pipe_fds) != 0)
            abort();
        fds[1] = pipe_fds[1];
    }
    if (fault == RING_FAULT_GARBAGE)
        memset(packet.bytes, 0x5A, length);
    send_packet(session->fd, &packet, length, fds, count);
    if (pipe_fds[0] >= 0) {
        close(pipe_fds[0]);
        close(pipe_fds[1]);
    }
}

/* True when the client has mapped the memory and may submit. */
static bool begin(struct session *session)
{
    int fault = session->server->fault;
    union dk_shm_packet packet;
    struct dk_error error;
    if (fault == RING_FAULT_REFUSE_AT_ONCE) {
        send_failure(session->fd, DK_SHM_ERROR, DK_FORBIDDEN, "user 7 may not");
        return false;
    }
    if (!receive_packet(session, &packet) || packet.message.kind != DK_SHM_HELLO)
        return false;
    if (fault == RING_FAULT_MUTE) {
        wait_for_the_end(session);
        return false;
    }
    if (fault == RING_FAULT_REFUSE) {
        send_failure(session->fd, DK_SHM_ERROR, DK_BUSY, "no session is free");
        return false;
    }
    if (dk_shm_hello_layout(&packet.hello, &session->layout, &error) != DK_OK)
        abort();
    make_memory(session, fault);
    welcome(session, fault);
    if (!receive_packet(session, &packet) || packet.message.kind != DK_SHM_MAPPED)
        return false;
    if (fault == RING_FAULT_MUTE_MAPPED) {
        wait_for_the_end(session);
        return false;
    }
    size_t length = dk_shm_begin(&packet, DK_SHM_STARTED);
    send_packet(session->fd, &packet, length, NULL, 0);
    session->server->session_count++;
    return true;
}

/* --- questions ----------------------------------------------------------------------------------------- */

static void send_model(struct session *session, const char *name, uint32_t id, uint64_t n, uint64_t k)
{
    union dk_shm_packet packet;
    size_t length = dk_shm_begin(&packet, DK_SHM_MODEL);
    packet.model.model_id = id;
    packet.model.dtype = DK_FP32;
    packet.model.n = n;
    packet.model.k = k;
    packet.model.version = 1;
    strcpy(packet.model.name, name);
    send_packet(session->fd, &packet, length, NULL, 0);
}

/* False when the client ends the session. */
static bool answer(struct session *session)
{
    struct ring_server *server = session->server;
    union dk_shm_packet packet;
    if (!receive_packet(session, &packet))
        return false;
    if (packet.message.kind == DK_SHM_CLOSE) {
        server->close_count++;
        return false;
    }
    if (server->is_mute)
        return true;
    bool has_wide = server->wide_n > 0;
    if (packet.message.kind == DK_SHM_OPEN_MODEL && strcmp(packet.open_model.name, "sum") == 0)
        send_model(session, "sum", 7, server->sum_n, 4);
    else if (packet.message.kind == DK_SHM_OPEN_MODEL && has_wide && !strcmp(packet.open_model.name, "wide"))
        send_model(session, "wide", 9, server->wide_n, 4);
    else if (packet.message.kind == DK_SHM_LIST_MODEL && packet.list_model.index == 0)
        send_model(session, "sum", DK_SHM_NO_MODEL, server->sum_n, 4);
    else if (packet.message.kind == DK_SHM_LIST_MODEL && packet.list_model.index == 1 && has_wide)
        send_model(session, "wide", DK_SHM_NO_MODEL, server->wide_n, 4);
    else if (packet.message.kind == DK_SHM_LOAD_MODEL && packet.load_model.k != 4)
        send_failure(session->fd, DK_SHM_ERROR, DK_TOO_LARGE, "weights beyond the cap");
    else if (packet.message.kind == DK_SHM_LOAD_MODEL)
        send_model(session, packet.load_model.name,
                   100 + session->ring.data[packet.load_model.weights_offset], packet.load_model.n,
                   packet.load_model.k);
    else
        send_failure(session->fd, DK_SHM_ERROR, DK_NOT_FOUND, "no such model");
    return true;
}

/* --- requests ------------------------------------------------------------------------------------------ */

static void compute(struct session *session, const struct dk_ring_submission *request)
{
    uint64_t n = request->model_id == 9 ? session->server->wide_n : session->server->sum_n;
    for (uint32_t row = 0; row < request->rows; row++) {
        float a[4];
        memcpy(a, session->ring.data + request->a_offset + row * sizeof a, sizeof a);
        for (uint64_t j = 0; j < n; j++) {
            float c = (a[0] + a[1] + a[2] + a[3]) * (float)(j + 1);
            memcpy(session->ring.data + request->c_offset + (row * n + j) * sizeof c, &c, sizeof c);
        }
    }
}

static void wake_client(struct session *session)
{
    struct dk_ring_header *header = session->ring.header;
    if (dk_ring_take_client_waits(header))
        syscall(SYS_futex, &header->client_waits, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void complete(struct session *session, const struct dk_ring_submission *request)
{
    int forgery = session->server->forgery;
    uint32_t status = session->server->refusal;
    if (status == DK_OK && request->a_dtype != DK_FP32)
        status = DK_BAD_DTYPE;
    if (status == DK_OK)
        compute(session, request);
    struct dk_ring_completion completion = {.user_data = request->user_data,
                                            .status = status,
                                            .detail = status == DK_BAD_DTYPE ? DK_RING_DETAIL_A_DTYPE
                                                                             : DK_RING_DETAIL_NONE,
                                            .queue_ns = 1000,
                                            .kernel_ns = 2000};
    if (forgery == RING_FORGE_UNKNOWN)
        completion.user_data ^= UINT64_C(1) << 40;
    if (forgery == RING_FORGE_STATUS)
        completion.status = 4096;
    for (int i = 0; i < (forgery == RING_FORGE_TWICE ? 2 : 1); i++)
        session->ring.completions[session->tail++ & session->ring.mask] = completion;
    dk_ring_publish_completions(session->ring.header,
                                session->tail + (forgery == RING_FORGE_TAIL ? UINT32_C(1000000) : 0));
    wake_client(session);
}

static bool take_requests(struct session *session)
{
    struct ring_server *server = session->server;
    uint32_t tail = dk_ring_submission_tail(session->ring.header);
    if (tail - session->head > session->layout.entry_count)
        abort(); /* our client broke the rule */
    bool has_worked = tail != session->head;
    for (; session->head != tail; session->head++) {
        dk_ring_copy_submission(&session->ring.submissions[session->head & session->ring.mask],
                                &session->held[session->held_count++]);
        server->request_count++;
    }
    if (server->holds)
        return has_worked;
    for (uint32_t i = 0; i < session->held_count; i++)
        complete(session, &session->held[i]);
    has_worked |= session->held_count > 0;
    session->held_count = 0;
    return has_worked;
}

/* As the daemon does it: announce, look again, sleep until the doorbell or a message. */
static bool rest(struct session *session)
{
    dk_ring_set_needs_wakeup(session->ring.header, true);
    if (dk_ring_submission_tail(session->ring.header) != session->head) {
        dk_ring_set_needs_wakeup(session->ring.header, false);
        return true;
    }
    struct pollfd polled[2] = {{.fd = session->fd, .events = POLLIN},
                               {.fd = session->doorbell_fd, .events = POLLIN}};
    (void)poll(polled, 2, 1); /* orders of the test come without a bell */
    dk_ring_set_needs_wakeup(session->ring.header, false);
    uint64_t rings;
    if (read(session->doorbell_fd, &rings, sizeof rings) == sizeof rings)
        session->server->doorbell_count++;
    return polled[0].revents == 0 || answer(session);
}

static void serve(struct session *session)
{
    struct ring_server *server = session->server;
    while (!server->stops && !server->dies) {
        uint32_t goodbye = atomic_exchange(&server->goodbye, DK_OK);
        if (goodbye != DK_OK) {
            dk_ring_set_server_state(session->ring.header,
                                     goodbye == DK_UNAVAILABLE ? DK_RING_CLOSING : DK_RING_CLOSED);
            send_failure(session->fd, DK_SHM_GOODBYE, goodbye, "because the test says so");
            wake_client(session);
        }
        if (!take_requests(session) && !rest(session))
            break;
    }
}

static void *run(void *context)
{
    struct ring_server *server = context;
    struct pollfd polled = {.fd = server->listen_fd, .events = POLLIN};
    while (!server->stops) {
        if (poll(&polled, 1, 1) <= 0)
            continue;
        struct session *session = calloc(1, sizeof *session);
        if (!session)
            abort();
        session->server = server;
        session->memory_fd = session->doorbell_fd = -1;
        session->fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        server->dies = false;
        if (session->fd >= 0 && begin(session))
            serve(session);
        if (session->mapping)
            munmap(session->mapping, session->layout.mapping_bytes);
        int fds[] = {session->fd, session->memory_fd, session->doorbell_fd};
        for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        free(session);
    }
    return NULL;
}

/* --- life ---------------------------------------------------------------------------------------------- */

void ring_server_start(struct ring_server *server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memset(server, 0, sizeof *server);
    server->sum_n = 3;
    make_temporary_folder(server->folder);
    snprintf(server->path, sizeof server->path, "%s/ring.sock", server->folder);
    snprintf(server->address, sizeof server->address, "unix:%s", server->path);
    strcpy(address.sun_path, server->path);
    server->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(server->listen_fd >= 0);
    assert_int_equal(bind(server->listen_fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server->listen_fd, 4), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, run, server), 0);
}

void ring_server_stop(struct ring_server *server)
{
    server->stops = true;
    assert_int_equal(pthread_join(server->thread, NULL), 0);
    close(server->listen_fd);
    remove_folder(server->folder);
}

void ring_server_await(_Atomic uint32_t *counter, uint32_t value)
{
    for (int i = 0; i < 10000 && *counter < value; i++)
        usleep(1000);
    if (*counter < value)
        fail_msg("the counter is %u, expected %u", *counter, value);
}
