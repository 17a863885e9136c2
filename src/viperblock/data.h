/* data.h — the data process: holds the volumes of one instance open and serves them, for as long as
 *          a guest needs, whether there is a manager or not.
 * Not here: rings (blk/vu.h), NBD (blk/nbd.h), layers (blk/disk.h), the manager (proc.c).
 * Threads:  the main loop has the control socket, the slots, the table of disks and the front ends'
 *           sockets; it never waits. Each disk has an owner thread, which runs the disk's own queue
 *           and does what may wait: opening, closing, growing, points in time.
 * Memory:   the process owns everything until its end.
 * Errors:   a request that fails is answered and changes nothing; without a manager, what has to
 *           come from it waits. */
#pragma once
#include "blk/ctl.h"
#include "blk/nbd.h"
#include "blk/vu.h"
#include "loop/loop.h"
#include <pthread.h>
#include <stdatomic.h>

#define DATA_LOCK_NS     UINT64_C(1500000000) /* writes of a killed process end within this */
#define DATA_TICK_NS     UINT64_C(1000000000)
#define DATA_QUIT_NS     UINT64_C(10000000000) /* a store that does not answer holds us no longer */
#define DATA_SNAP_NS     UINT64_C(2000000000) /* for the owners of a snapshot to come together */
#define DATA_MAX_REQS    256u                 /* of the manager, under way */
#define DATA_MAX_RESULTS 512u                 /* that it did not read */
#define DATA_WINDOW      8u                   /* blocks of one snapshot on their way */

struct data;
struct data_disk;
struct data_snap;

/* One request of the manager on its way: in its disk's queue, to the owner thread, back, into a
 * RESULT. */
struct data_req {
    struct data_req *next;
    struct data *p;
    struct data_disk *d; /* NULL: of the process */
    uint64_t conn;       /* of which connection; 0 = our own, not answered */
    union ctl_msg *m;    /* locked memory: may hold keys */
    int fds[CTL_MAX_FDS];
    size_t n_fds;
    struct data_snap *snap; /* of a SNAP: one of these for each disk, and the manager's in it */
    unsigned snap_idx;
    int rc;
    uint64_t value;
    struct err err;
};

/* A block that a disk wants from the manager, or wants it to store. */
struct data_ask {
    struct data_ask *next;
    struct data_disk *d;
    uint64_t block;
    bool is_upload, is_background;
    unsigned frozen_idx;
    const void *data; /* of an upload; borrowed until it is answered */
};

struct data_asks { /* a queue, first come first served */
    struct data_ask *head, **tail;
};

enum data_ask_class { ASK_GUEST, ASK_UPLOAD, ASK_BACKGROUND, ASK_N };

struct data_slot {
    bool is_used, is_due; /* is_due: the manager was not told yet (this manager) */
    enum data_ask_class class;
    unsigned no;
    uint64_t block;
    struct data_ask
        *ask; /* NULL: nobody waits any more, but the manager may still write into it */
};

struct data_disk {
    struct data *p;
    unsigned no;
    char id[BLK_SNAP_ID];

    /* The main loop's. */
    struct data_req *now, *queue, **queue_tail; /* requests: one at a time, in their order */
    bool is_starting;                           /* in data_disk_next() */
    bool is_open, has_owner;
    bool
        is_cut; /* a forced close: who waits for the store gets an error, not the store's time */
    bool has_guest;    /* the frontend stays after a forced close */
    int step;          /* of closing */
    int vu_fd, nbd_fd; /* listening sockets: kept for a manager that asks for them back */
    struct vu *vu;
    struct nbd *nbd;
    bool is_gathering, is_state_due;
    bool is_gathered;       /* what is shown of its map was looked at, once at least */
    bool is_gathered_anew;  /* asked for while a look was under way: it may be too old */
    bool is_asked;          /* told even when nothing changed */
    struct ctl_state shown; /* what is to be sent, or was */

    /* The owner thread's, but for 'disk' while the disk is open: that is for all. */
    pthread_t thread;
    struct blk_queue *inner;
    struct disk *disk;
    struct blk_msg job_msg, gather_msg;
    struct data_req *job; /* set by job_msg: done outside of the queue's call-backs */
    bool is_ending;

    atomic_uint done; /* bit i: all blocks of frozen set i are stored */

    pthread_mutex_t mu;    /* taken before p->ask_mu */
    struct blk_layer *cow; /* GUARDED_BY(mu); NULL: wants no answers (any more) */
    char frozen[BLK_MAX_FROZEN][BLK_SNAP_ID];     /* GUARDED_BY(mu) */
    struct blk_cow_stats cow_stats;               /* GUARDED_BY(mu) */
    struct blk_frozen cow_frozen[BLK_MAX_FROZEN]; /* GUARDED_BY(mu) */
};

struct data {
    struct loop *loop;
    const char *name;
    char boot_id[48]; /* read before the sandbox closes */
    int listen_fd;
    struct loop_fd *listen;
    struct data_disk *disks[CTL_MAX_DISKS];
    unsigned n_reqs;
    bool is_quitting;
    struct data_req *quit;
    struct loop_timer *quit_deadline, *tick;

    /* The manager's connection. */
    int fd, mem_fd;
    struct loop_fd *link;
    uint64_t conn;
    union ctl_msg *in; /* locked memory */
    struct data_req *results, **results_tail;
    unsigned n_results;
    unsigned done_sent[CTL_MAX_DISKS];
    bool is_welcome_due;

    uint8_t *mem; /* CTL_N_SLOTS * BLK_BLOCK */
    struct data_slot slots[CTL_N_SLOTS];
    unsigned n_used[ASK_N];

    atomic_bool is_woken;
    pthread_mutex_t ask_mu;
    struct data_asks asks[ASK_N]; /* GUARDED_BY(ask_mu) */
};

/* data_proc.c: life, the manager's messages. 0 when it ended cleanly. */
int data_run(struct data *p, const char *name, int listen_fd, unsigned n_rings,
             struct err *err);
void data_handle(struct data *p, const int *fds, size_t n_fds); /* p->in; takes descriptors */
void data_ended(struct data *p);                                /* a disk is gone */
struct data_req *data_req_new(struct data *p);                  /* of our own: not answered */

/* data_link.c: the connection. Main loop, but for data_wake(). */
int data_link_listen(struct data *p, struct err *err);
void data_link_done(struct data *p);
void data_answer(struct data_req *r); /* takes r */
void data_pump(struct data *p);       /* sends what is due */
void data_wake(struct data *p);       /* any thread: pump soon */
void data_req_free(struct data_req *r);
union ctl_msg *data_msg_new(void); /* in memory that is never swapped */
void data_msg_free(union ctl_msg *m);

/* data_disk.c. Main loop. */
int data_disk_new(struct data *p, unsigned no, const char *id, struct err *err);
void data_disk_do(struct data_req *r);       /* queues r */
void data_disk_finish(struct data_req *r);   /* answers r, goes on with the next */
void data_disk_owner(struct data_req *r);    /* hands r to the owner thread */
void data_disk_release(struct data_disk *d); /* frees it when nothing is left of it */

/* data_serve.c: front ends, and closing, which takes them away. Main loop. */
int data_serve_vu(struct data_req *r);
int data_serve_nbd(struct data_req *r);
void data_unserve(struct data_req *r);
void data_close(struct data_req *r);
void data_frontends(struct data *p); /* one may have come or gone */

/* data_state.c. Main loop. */
void data_state_show(struct data_disk *d);   /* is there something new to tell? */
void data_state_ask(struct data_disk *d);    /* told as it is now, soon */
void data_state_gather(struct data_disk *d); /* the same, after a look at the disk's map */
void data_state_on_tick(void *ctx);

/* data_snap.c. Owner thread, but for the first two. */
struct data_snap *data_snap_new(struct data_req *r);
void data_snap_come(struct data_req *r); /* main loop: the disk's turn has come */
void data_snap_join(struct data_req *r);
void data_snap_leave(struct data_snap *s); /* main loop; the last one answers */
int data_snap_read(struct data_req *r);
int data_snap_end(struct data_req *r);

/* data_slot.c: blocks between disks and the manager. Main loop. */
void data_slots_init(struct data *p);
struct blk_supplier data_supplier(struct data_disk *d);
/* Answers all of a disk: wants with want_rc, uploads with -EAGAIN. */
void data_slots_drop(struct data_disk *d, int want_rc);
int data_slots_renew(struct data *p, struct err *err); /* a new manager: all is asked again */
void data_slots_free(struct data *p);
void data_slots_fetched(struct data *p, const struct ctl_head *h);
void data_slots_stored(struct data *p, const struct ctl_head *h);
/* Gives free slots to those who wait; then the next message that is due, false when there is
 * none. */
void data_slots_assign(struct data *p);
bool data_slots_next(struct data *p, union ctl_msg *ret, unsigned *ret_slot);
