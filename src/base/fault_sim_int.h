/* fault_sim_int.h — what the two halves of the simulator share: nodes and the journal.
 * Not here: the door (fault.h).
 * Threads:  under the simulator's lock.
 * Memory:   the simulator owns nodes and operations.
 * Errors:   negative errno. */
#pragma once
#include "base/fault_sim.h"
#include "base/vec.h"
#include <pthread.h>

/* Bytes that read as zeros until written: an anonymous mapping, so that a large preallocated file
 * costs nothing. */
struct sim_image {
    uint8_t *p;
    size_t size, cap;
};

struct sim_entry {
    char *name;
    struct sim_node *node;
};

/* One inode, as it is durable. */
struct sim_node {
    uint64_t ino;
    mode_t mode;
    bool is_dir, has_failed_sync;
    bool is_gone; /* removed from the live tree: its inode number may be another's now */
    struct sim_image img;
    VEC(struct sim_entry) entries;
};

enum sim_kind { SIM_WRITE, SIM_SIZE, SIM_GROW, SIM_PUNCH, SIM_LINK, SIM_RENAME, SIM_REMOVE };

struct sim_op {
    enum sim_kind kind;
    struct sim_node *node;  /* the file, or the folder that holds the name */
    struct sim_node *child; /* names */
    char *name;             /* the new one of a rename */
    uint8_t *data;
    uint64_t off, n;
};

struct fault_sim {
    struct fault_fs fs; /* first: the door hands it back */
    pthread_mutex_t lock;
    struct sim_node *root;
    VEC(struct sim_node *) nodes;
    VEC(struct sim_op) ops;
    uint64_t held_size;
    struct fault_plan plan;
    uint64_t n_calls;
    uint32_t n_resyncs;
    bool has_failed;
};

MUST_CHECK int sim_image_resize(struct sim_image *img, uint64_t size);
void sim_image_done(struct sim_image *img);
MUST_CHECK int sim_image_write(struct sim_image *img, const uint8_t *p, uint64_t n,
                               uint64_t off);
void sim_image_punch(struct sim_image *img, uint64_t off, uint64_t n);
/* The whole operation, on data. */
MUST_CHECK int sim_apply_data(struct sim_image *img, const struct sim_op *op);
/* The whole operation, on names. 'entries' is that of a node, or a copy. */
void sim_apply_name(struct sim_node *dir, const struct sim_op *op);
void sim_entries_free(struct sim_node *dir);
bool sim_is_name_op(const struct sim_op *op);
