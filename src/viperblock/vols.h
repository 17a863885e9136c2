/* vols.h — which volume is open in which data process, and what it does there.
 * Not here: processes (proc.h), files (folder.h), desired state (volume.c), blocks that come
 *           and go (supply.h).
 * Threads:  pool threads; calls block. A volume is worked on by one thread at a time:
 *           vol_take() waits, vol_give() lets the next one in. Whoever takes several takes them
 *           in order of their ids.
 * Memory:   a struct vol lives while it is taken, open or remembered.
 * Errors:   -EAGAIN "VolumeNotReady" a process is being started again, ask again; -EBUSY
 *           "VolumeInUse"; -EACCES "Locked" no root key for an encrypted volume; -EIO
 *           "VolumeFaulted"; of the data process.
 * Survives: a note of each open volume lies beside the sockets of its process
 *           (<run>/<process>/<volume>.json), so that a new manager knows what the old one
 * did. */
#pragma once
#include "blk/ctl.h"
#include "viperblock/meta.h"
#include "viperblock/proc.h"
#include "viperblock/vb_int.h"

#define VOL_N_CRASHES 2u
#define VOL_CRASH_NS  (60 * NS_PER_S)

struct upload { /* of a frozen set */
    char snap[BLK_SNAP_ID];
    bool is_open; /* blocks are taken: snap_begin() was done */
    bool is_done; /* all of them are stored */
};

struct vol {
    char id[BLK_SNAP_ID], account[16];
    bool is_taken;
    unsigned n_waiting;
    /* Changed by the taker, under vols->mu; read by call-backs under it. */
    char host[BLK_SNAP_ID]; /* process that has it, or shall: "" = closed */
    struct proc *p;         /* ref, while it is open */
    uint32_t disk;
    uint64_t size;
    bool is_vu; /* a guest is served, by vhost-user or, 'is_vu_nbd', by NBD */
    bool is_vu_nbd;
    bool is_nbd, is_nbd_read_only; /* a tool is, by NBD */
    uint32_t uid, n_queues;
    int vu_fd, nbd_fd; /* listening sockets, -1 = none */
    uint64_t served_ns;
    bool is_crashed; /* faulted by us: its opening ended its process twice */
    /* The process that it is being opened in, until that is known to have gone well (compared
     * only): one that ends meanwhile is its fault. */
    const struct proc *probation;
    uint64_t crash_ns[VOL_N_CRASHES];
    /* What an absent block is: of meta.json. */
    bool source_loaded;
    char source_id[BLK_SNAP_ID], source_account[16], base[BLK_SNAP_ID];
    uint64_t source_size;
    enum fetch_fault { FETCH_OK, FETCH_AWAY, FETCH_LOST } fetch_fault; /* of absent blocks */
    struct upload uploads[BLK_MAX_FROZEN];
    struct ctl_state state;
    uint64_t state_ns; /* 0 = never heard */
};

struct vols;
struct vols_opts {
    struct vb *vb;
    struct loop *loop;
    const char *run_dir, *exe;
};
/* Reads the notes of an older manager; starts nothing yet. */
MUST_CHECK int vols_new(const struct vols_opts *o, struct vols **ret, struct err *err);
void vols_stop(struct vols *vs); /* calls that wait end; any thread */
/* When the service ends, after vols_stop(): processes that serve nobody end with it. */
void vols_quit_idle(struct vols *vs);
void vols_free(struct vols *vs); /* as procs_free() */

/* 'account' "" = as remembered. */
struct vol *vol_take(struct vols *vs, struct str account, struct str id);
/* Closes nothing; a volume that nobody needs any more is closed by the reconciler of its
 * process, which this wakes. */
void vol_give(struct vols *vs, struct vol *v);

bool vol_is_open(struct vols *vs, struct vol *v);
/* Opens it, in process 'host' ("i-..."), or (NULL) wherever it is, a tool process when it is
 * closed. One that is open elsewhere and does not serve anybody there moves. */
MUST_CHECK int vol_open(struct vols *vs, struct vol *v, const char *host, unsigned n_rings,
                        struct err *err);
/* Flushes, gives up the lock. -EBUSY while a frontend is connected, unless 'is_forced': it sees
 * errors from now on. */
MUST_CHECK int vol_close(struct vols *vs, struct vol *v, bool is_forced, struct err *err);
struct vol_guest {
    uint32_t uid, n_queues;
    bool is_nbd; /* a guest whose memory cannot be shared */
};
MUST_CHECK int vol_serve_guest(struct vols *vs, struct vol *v, const struct vol_guest *g,
                               char path[108], struct err *err);
/* Of a copy too: the guest's end is there. */
bool vol_is_connected(const struct vol *v);
MUST_CHECK int vol_serve_nbd(struct vols *vs, struct vol *v, bool is_read_only, char path[108],
                             struct err *err);
MUST_CHECK int vol_unserve(struct vols *vs, struct vol *v, bool is_nbd, struct err *err);
/* Asks its process; 'ret' is a copy. */
MUST_CHECK int vol_ask_state(struct vols *vs, struct vol *v, struct ctl_state *ret,
                             struct err *err);
/* A request about the open volume; the disk's number is set here. */
MUST_CHECK int vol_call(struct vols *vs, struct vol *v, union ctl_msg *m, uint64_t timeout_ns,
                        struct proc_answer *ret, struct err *err);

/* Its type, or what is provisioned of it, has changed. */
MUST_CHECK int vol_set_limits(struct vols *vs, struct vol *v, struct err *err);
/* It has grown. */
void vol_set_size(struct vols *vs, struct vol *v, uint64_t size);
/* With how many it will be opened; of an open one nothing changes. */
void vol_set_queues(struct vols *vs, struct vol *v, uint32_t n_queues);
/* Its process's deaths were not its own fault, or do not matter any more. */
void vol_forgive(struct vols *vs, struct vol *v);
/* Everything is present. */
void vol_forget_source(struct vols *vs, struct vol *v);
/* Snapshots: what the description names; blocks are taken from now on; how far it is. */
void vol_set_frozen(struct vols *vs, struct vol *v, const struct volume_meta *m);
void vol_open_upload(struct vols *vs, struct vol *v, const char *snap);
struct upload vol_upload(struct vols *vs, const struct vol *v, const char *snap);
/* Afresh, after a fault that was accepted or mended. */
MUST_CHECK int vol_reopen(struct vols *vs, struct vol *v, struct err *err);
/* Of a volume that is open: its absent blocks are fetched in the background. */
void vols_fill(struct vols *vs, struct str id, uint64_t bytes_per_s);
/* Of a volume that is deleted. */
void vols_forget_map(struct vols *vs, struct str id);

/* How the last fetch for it went; what is lost stays lost. Pool threads. */
void vols_fetched(struct vols *vs, const struct proc *p, uint32_t disk, enum fetch_fault f);
/* Brings a process to what it shall have: "proc/<name>". */
int vols_reconcile_proc(struct vols *vs, struct arena *a, struct str name);
/* Once a second: states are asked for, what changed is told. */
void vols_tick(struct vols *vs);
/* A copy of what is known of the volume (its process's last word), or false. */
bool vols_peek(struct vols *vs, struct str id, struct vol *ret);
/* Copies of all that are open. free(). */
size_t vols_list(struct vols *vs, struct vol **ret);
