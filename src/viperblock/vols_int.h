/* vols_int.h — what vols.c, vols_host.c and vol_open.c share.
 * Not here: the door (vols.h).
 * Threads:  'mu' guards everything; 'cond' tells of every change. Lock order: mu, then that of
 *           the processes (proc_int.h).
 * Memory, errors: vols.h. */
#pragma once
#include "base/omap.h"
#include "viperblock/vols.h"
#include <limits.h>

struct host { /* a process by name, whether it runs or not */
    char name[BLK_SNAP_ID];
    struct proc *p;   /* ref, or NULL */
    bool is_busy;     /* being started, adopted or ended */
    bool is_learning; /* what it has open is being asked for */
    bool is_known;    /* started or looked for by this manager */
    bool has_crashed; /* the last one: volumes are opened one by one */
    uint32_t next_disk;
    uint64_t strays;   /* disks that it has open and that no note names: a bit each */
    unsigned n_states; /* messages about disks since it was met */
    uint64_t cut_ns;   /* last heard of a frontend whose disk was taken away by force */
    unsigned n_rings, n_deaths;
    uint64_t death_ns; /* of the newest */
};

struct vols {
    struct vols_opts o;
    struct procs *procs;
    char maps_dir[PATH_MAX];
    atomic_bool is_stopping;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    struct omap *vols;  /* id -> struct vol */
    struct omap *hosts; /* name -> struct host */
    uint64_t asked_ns;
};

void vols_lock(struct vols *vs);
void vols_unlock(struct vols *vs);
/* Waits for a change, at most until then; false = too late, or stopping. */
bool vols_wait(struct vols *vs, uint64_t end_mono_ns);
/* Looks at "proc/<name>" soon. */
void vols_touch_host(struct vols *vs, const char *name);
void vols_touch_snapshot(struct vols *vs, const struct vol *v, const char *snap);
/* Under 'mu'. */
struct host *host_find(struct vols *vs, const char *name);
struct vol *vol_of_disk(struct vols *vs, const struct proc *p, uint32_t disk);

/* The process of that name, up: adopted or started when need be. A reference is given. */
MUST_CHECK int host_up(struct vols *vs, const char *name, unsigned n_rings, struct proc **ret,
                       struct err *err);
/* What a taken volume needs again after its process was started again. */
MUST_CHECK int vol_restore(struct vols *vs, struct vol *v, struct err *err);
/* True when the volume has a reason to be open. */
bool vol_is_wanted(struct vols *vs, struct vol *v);
/* Its note; written before anything is promised, removed when it is closed. */
MUST_CHECK int vol_note_write(struct vols *vs, const struct vol *v, struct err *err);
void vol_note_remove(struct vols *vs, const struct vol *v, const char *host);
MUST_CHECK int vols_read_notes(struct vols *vs, struct err *err);
void vol_path(const struct vols *vs, const char *host, const char *id, const char *ext,
              char out[108]);
/* Its process, a reference, or NULL: it may die at any moment. */
struct proc *vol_proc(struct vols *vs, struct vol *v);
struct blk_limits vol_limits(struct vols *vs, const struct vol *v);
void vol_not_open(struct vols *vs, struct vol *v);
