/* guest_dir.h — the two folders of an instance: what must survive, and what one run leaves.
 *   <data_dir>/compute/<id>/   console.log console.log.1 vars.fd
 *   <run_dir>/guest/<id>/      note.json mon.sock qmp.sock console.sock qemu.pid monitor.log
 * The note is how a restarted service finds its guests again.
 * Not here: starting anything (spawn.h).
 * Threads:  any; one owner per instance at a time.
 * Memory:   guest_note has its texts inside.
 * Errors:   negative errno and *err. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "os/proc_id.h"
#include <stdint.h>
#include <sys/types.h>

#define GUEST_ID_MAX   24u
#define GUEST_BOOT_MAX 40u

struct guest_note {
    char id[GUEST_ID_MAX], account[16], boot_id[GUEST_BOOT_MAX], arch[12], accel[8];
    uint64_t uid_slot; /* user = uid_base + 100 + this */
    uid_t uid;
    struct proc_id monitor, qemu; /* qemu.pid 0: not known yet */
};

struct guest_dirs {
    const char *run_dir, *data_dir; /* of the node */
};

/* "<run_dir>/guest/<id>", in the buffer; -ENAMETOOLONG when a socket in it would not fit into
 * an address. */
#define GUEST_PATH_MAX 96
MUST_CHECK int guest_run_path(const struct guest_dirs *d, const char *id,
                              char ret[GUEST_PATH_MAX], struct err *err);
#define GUEST_DATA_PATH_MAX 256
MUST_CHECK int guest_data_path(const struct guest_dirs *d, const char *id,
                               char ret[GUEST_DATA_PATH_MAX], struct err *err);

MUST_CHECK int guest_note_write(const struct guest_dirs *d, const struct guest_note *n,
                                struct err *err);
/* -ENOENT: there is none. */
MUST_CHECK int guest_note_read(const struct guest_dirs *d, const char *id,
                               struct guest_note *ret, struct err *err);
/* Ids of all run folders, ascending; in the arena. */
MUST_CHECK int guest_dir_list(const struct guest_dirs *d, struct arena *a, struct str **ret_ids,
                              size_t *ret_n, struct err *err);
/* The pid that QEMU wrote. */
MUST_CHECK int guest_pid_read(const struct guest_dirs *d, const char *id, pid_t *ret);

/* Removes the run folder (the end of QEMU has been recorded) or the data folder (the instance
 * is terminated; the console log goes with it after the hour for which AWS shows it: call it
 * then). */
void guest_run_remove(const struct guest_dirs *d, const char *id);
void guest_data_remove(const struct guest_dirs *d, const char *id);

/* "i-" and hex digits: nothing else ever becomes part of a path. */
bool guest_id_is_ok(struct str id);
