/* shm_access.c: SO_PEERCRED and SO_PEERGROUPS against the lists. */
#include "server/shm_access.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GROUPS_MAX = 1024 };

dk_status dk_shm_peer_ids_get(int fd, struct dk_shm_peer_ids *out, struct dk_error *error)
{
    struct ucred ids;
    socklen_t length = sizeof ids;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ids, &length) != 0) {
        return dk_fail(error, DK_IO_ERROR, "cannot ask who the client is: %s", strerrordesc_np(errno));
    }
    *out = (struct dk_shm_peer_ids){.pid = ids.pid, .uid = ids.uid, .gid = ids.gid};
    return DK_OK;
}

static bool is_listed(const struct dk_id_list *list, uint32_t id)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->ids[i] == id) {
            return true;
        }
    }
    return list->is_any;
}

dk_status dk_shm_access_check(const struct dk_shm_peer_ids *peer, const gid_t *groups, size_t group_count,
                              uid_t own_uid, const struct dk_id_list *allow_uid,
                              const struct dk_id_list *allow_gid, struct dk_error *error)
{
    if (peer->uid == 0 || peer->uid == own_uid || is_listed(allow_uid, peer->uid) ||
        is_listed(allow_gid, peer->gid)) {
        return DK_OK;
    }
    for (size_t i = 0; i < group_count; i++) {
        if (is_listed(allow_gid, groups[i])) {
            return DK_OK;
        }
    }
    return dk_fail(error, DK_FORBIDDEN,
                   "user %u, group %u (process %d) may not share memory: --shm-allow-uid, --shm-allow-gid",
                   peer->uid, peer->gid, peer->pid);
}

dk_status dk_shm_access(int fd, const struct dk_config *config, struct dk_shm_peer_ids *out,
                        struct dk_error *error)
{
    gid_t groups[GROUPS_MAX];
    socklen_t length = sizeof groups;
    dk_status status = dk_shm_peer_ids_get(fd, out, error);
    if (status != DK_OK) {
        return status;
    }
    /* More groups than that, or a kernel before 4.13: the primary group alone counts. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) != 0) {
        length = 0;
    }
    return dk_shm_access_check(out, groups, length / sizeof groups[0], geteuid(), &config->shm_allow_uid,
                               &config->shm_allow_gid, error);
}
