/* compute_int.h — what the parts of the service share.
 * Files:    compute.c the list of guests and the view; guest.c the shell of vm_fsm;
 *           guest_mon.c the monitor's connection; guest_disk.c volumes of a guest; launch.c
 *           pool jobs (start, adopt, open a volume, look at links); store.c writing status
 *           records and facts; compute_rpc.c the service's socket.
 * Not here: the pure cores (vm_fsm.h, qemu_args.h) and processes (spawn.h).
 * Threads:  a struct guest belongs to the loop thread. A job belongs to the pool thread that
 *           runs it until its 'done'; it names its guest by id, which may be gone by then.
 * Memory:   compute owns guests, a guest owns its connection and descriptors.
 * Errors:   negative errno and *err. */
#pragma once
#include "base/arena.h"
#include "base/omap.h"
#include "base/vec.h"
#include "compute/compute.h"
#include "compute/guest_proto.h"
#include "compute/spawn.h"
#include "kv/view.h"
#include "loop/pool.h"
#include "model/instance.h"
#include "model/network.h"
#include "model/volume.h"
#include "net/rpc.h"
#include <stdatomic.h>

#define GUEST_MAX_DISKS \
    32u /* more than slots: one too many is shown as attaching with its reason */
#define DISK_NO_SLOT    255u
#define DISK_REASON_MAX 200
#define STATUS_ARENA    (256u << 10)

enum disk_state {
    DISK_ATTACHING,
    DISK_ATTACHED,
    DISK_DETACHING,
    DISK_DETACHED,
    DISK_BUSY,
    DISK_STATE_N
};

struct guest_disk {
    char id[GM_NAME_MAX]; /* "" = free entry */
    bool is_named;        /* a spec names this volume for this instance (seen in this pass) */
    bool is_wanted, is_forced, is_root;
    bool is_ready;                 /* its bytes are there (viperblock) */
    char trouble[DISK_REASON_MAX]; /* why they will never be, or "" */
    uint64_t generation;
    enum disk_state state;
    uint64_t slot;
    char reason[DISK_REASON_MAX];
    bool is_dirty;   /* its record is to be written */
    bool is_opening; /* a job has its socket made, or the monitor plugs it */
    bool is_closing; /* a job gives it back to the block service */
    bool is_cut;     /* the block service has taken it from the guest by force */
    char device[32];
    char path[108];      /* of its socket, when this process had it made */
    uint64_t size;       /* bytes, as the block service says */
    uint64_t shown_size; /* as QEMU was told last; 0 = not known */
    uint64_t retry_ns;   /* not before: opening, closing, plugging */
    uint64_t ask_ns;     /* not before: the guest is asked again to let it go */
    unsigned n_tries;
};

struct guest_nic {
    char id[GM_NAME_MAX];
    uint64_t index;
    bool is_ready;
    char trouble[DISK_REASON_MAX];
};

struct guest {
    struct compute *c;
    char id[GUEST_ID_MAX], account[16];
    const struct view_entry *spec; /* ref; NULL: the record is gone */
    /* ref: the newest of our own records, for members we do not know */
    const struct view_entry *status;
    bool is_seen;

    struct vm_fsm fsm;
    uint64_t started_ns, impaired_since_ns;
    char boot_id[GUEST_BOOT_MAX];
    char system_check[20], instance_check[20];
    uint64_t checks_ns; /* next look: a guest can change them, and each change is a write */
    enum instance_state checked_state;
    bool is_dirty, is_writing, is_written_once;
    uint64_t version;
    uint64_t reap_version; /* the end of QEMU may be forgotten when this is on disk; 0 = none */
    uint64_t write_retry_ns, written_ns;
    uint64_t fine_ns; /* the instance check was fine, or the start began */

    enum vm_proc proc;
    enum vm_end end;
    char end_text[VM_REASON_MAX];
    struct guest_note note;
    bool has_note;
    bool is_adopting, is_launching, is_quit_due;
    unsigned n_quits;
    bool is_pending_adopt; /* adopt at the next step, not before adopt_ns */
    uint64_t adopt_ns;
    unsigned n_adopt_tries;

    int conn_fd;
    struct loop_fd *conn;
    struct gm_state mon;
    uint64_t window_ns;
    unsigned n_msgs;
    bool has_state;
    uint32_t seq;
    struct {
        uint32_t seq; /* 0 = none */
        uint32_t op;
        unsigned slot;
        uint64_t since_ns;
    } cmd;
    uint64_t again_ns; /* the monitor was busy: ask the state machine again then */

    struct guest_disk disk[GUEST_MAX_DISKS];
    struct guest_nic nic[GM_N_NICS];
    unsigned n_nics;
    bool is_link_up, is_link_known, is_looking;
    uint64_t link_ns; /* next look */
};

struct old_monitor {
    struct proc_id monitor;
    char id[GUEST_ID_MAX];
};

struct compute {
    struct compute_opts o;
    struct spawn_host spawn;
    struct view *view;
    struct pool *pool;       /* work that waits for other services and processes */
    struct pool *write_pool; /* writes to the store: never behind the former */
    struct rpc_client *block, *net;
    struct rpc_server *rpc;
    struct omap *guests; /* id -> struct guest */
    struct loop_timer *tick;
    atomic_bool is_poked;
    _Atomic uint64_t synced_rev;
    atomic_bool is_stopping;
    bool is_facts_written, is_facts_writing;
    uint64_t facts_ns, sweep_ns;
    unsigned n_jobs;
    VEC(struct old_monitor) old; /* children that end soon */
};

/* compute.c */
struct guest *compute_guest(struct compute *c, const char *id); /* NULL: gone */
void compute_poke(struct compute *c); /* any thread: look again soon */
/* A monitor that was dismissed, or has died: collected when it is gone, with its control group. */
void compute_reap_later(struct compute *c, const struct proc_id *monitor, const char *id);
/* A user slot that no guest of this node has. */
uint64_t compute_free_slot(struct compute *c);

/* guest.c */
struct guest *guest_new(struct compute *c, const char *id, const char *account);
void guest_free(struct guest *g);
void guest_load(struct guest *g, const struct instance_status *st); /* NULL: none yet */
void guest_step(struct guest *g);
void guest_mark(struct guest *g); /* its status record is to be written */
void guest_set_end(struct guest *g, enum vm_end end, const char *text);
void guest_reap(struct guest *g);
const struct instance *guest_spec(const struct guest *g);

/* guest_mon.c */
void guest_connect(struct guest *g, int fd); /* takes fd */
void guest_disconnect(struct guest *g);
/* A command that the monitor runs one at a time; false: one is running, or there is no
 * connection. */
bool guest_command(struct guest *g, enum gm_op op, const struct gm_cmd *args);
/* QUIT, BYE, STATE, INPUT */
void guest_send_now(struct guest *g, enum gm_op op, struct str data);

/* guest_disk.c */
/* What the store says: the volume's spec, its status and our own record (both may be NULL). */
void guest_disk_spec(struct guest *g, const struct volume *v, const struct volume_status *st,
                     const struct attachment_status *at);
void guest_disks_begin(
    struct guest *g); /* a pass over the store begins: who is not named in it has left */
void guest_disks_assign(struct guest *g); /* a slot for each disk that wants one */
void guest_disks_step(struct guest *g);
void guest_disk_result(struct guest *g, uint32_t op, unsigned slot, int code, const char *text);
void guest_disk_opened(struct guest *g, const char *id, const char *path, uint64_t size,
                       const struct err *err);
/* A launch has plugged it; id "" = nothing. */
void guest_disk_started(struct guest *g, const char *id, const char *path, uint64_t size);
void guest_disk_closed(struct guest *g, const char *id, const struct err *err);
/* READY_WAIT, _YES or _FAILED with the reason. */
enum vm_ready guest_disks_ready(struct guest *g, char *why, size_t size);
extern const char *const disk_state_names[DISK_STATE_N];

/* launch.c */
void launch_start(struct guest *g);
void launch_adopt(struct guest *g);
void launch_open_disk(struct guest *g, const struct guest_disk *d);
/* volume.close: guest_disk_closed() hears of it. */
void launch_close_disk(struct guest *g, const struct guest_disk *d);
void launch_look_at_link(struct guest *g);

/* store.c */
void store_write(struct guest *g);
void store_write_facts(struct compute *c);
void guest_checks(struct guest *g, uint64_t now_ns);

/* compute_rpc.c */
MUST_CHECK int compute_rpc_start(struct compute *c, struct err *err);
