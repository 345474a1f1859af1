/* shm_access.h: who is at the other end of a handshake socket, and may they share memory with us. */
#ifndef DK_SERVER_SHM_ACCESS_H
#define DK_SERVER_SHM_ACCESS_H

#include <stddef.h>
#include <sys/types.h>

#include "proto/status.h"
#include "server/config.h"

/* As the kernel saw it at connect. */
struct dk_shm_peer_ids {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

/* DK_IO_ERROR. Thread: any. */
dk_status dk_shm_peer_ids_get(int fd, struct dk_shm_peer_ids *out, struct dk_error *error);
/* Root, the daemon's own user `own_uid`, a listed user, or a member of a listed group (`groups` are the
 * supplementary ones). DK_FORBIDDEN names the ids. Pure. */
dk_status dk_shm_access_check(const struct dk_shm_peer_ids *peer, const gid_t *groups, size_t group_count,
                              uid_t own_uid, const struct dk_id_list *allow_uid,
                              const struct dk_id_list *allow_gid, struct dk_error *error);
/* Both, for a connected socket. */
dk_status dk_shm_access(int fd, const struct dk_config *config, struct dk_shm_peer_ids *out,
                        struct dk_error *error);

#endif
