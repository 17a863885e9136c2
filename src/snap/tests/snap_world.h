/* snap_world.h — real spx-state and spx-predastore in a temporary folder, a store of snapshots
 *           over
 * them, and an oracle that knows every object of an account to the byte.
 * Not here: tests.
 * Threads:  one.
 * Memory:   world_init(), world_done(). Asserts instead of errors. */
#pragma once
#include "base/test.h"
#include "base/vec.h"
#include "snap/snap_int.h"
#include "testkit/daemon.h"
#include "testkit/tmpdir.h"

struct world {
    struct tmpdir dir;
    char config[PATH_MAX], sock[PATH_MAX], pending[PATH_MAX], key[PATH_MAX];
    struct daemon *state, *store;
    struct keys *keys;
    struct snap_store *snap;
    struct snap_s3 *s3; /* of the test's own */
    struct snap_opts opts;
    void *buf;
};
/* argv of main: spx, spx-state, spx-predastore */
void world_init(struct world *w, char **argv);
void world_done(struct world *w);
/* The store of snapshots: begun anew, as after kill -9. */
void world_reopen(struct world *w);

/* What a block holds: 0 a hole, else bytes made of this number. */
void world_fill(uint32_t what, void *p);

/* ---- the oracle: one account ---- */

#define ORACLE_BLOCKS 2600u /* three pages, the last one short */
#define ORACLE_SNAPS  32u

struct oracle_snap {
    char id[24];
    enum { O_NONE, O_PENDING, O_VISIBLE, O_KEPT } state;
    bool is_encrypted;
    struct snap_info info; /* as it was begun */
    uint32_t n_blocks;     /* of the disk */
    uint32_t
        base[ORACLE_BLOCKS]; /* what it began from: its pages are needed until the commit */
    uint32_t blocks[ORACLE_BLOCKS];
    uint8_t is_put[ORACLE_BLOCKS]; /* pending: named by the log */
    VEC(uint32_t) logged;          /* everything that was put, replaced ones too */
};
struct oracle {
    char account[16];
    bool has_keys;
    struct oracle_snap snaps[ORACLE_SNAPS];
};
void oracle_init(struct oracle *o, const char *account);
void oracle_done(struct oracle *o);
struct oracle_snap *oracle_new(struct oracle *o, const struct oracle_snap *parent, bool is_enc,
                               uint32_t n_blocks);
void oracle_put(struct oracle_snap *x, uint32_t block, uint32_t what);
/* Keys and sizes of the bucket, below the account, are exactly those. Call it after a
 * collection. */
void oracle_check_keys(struct world *w, const struct oracle *o);
/* Names, differences and bytes of a snapshot are as they should be. */
void oracle_check_snap(struct world *w, const struct oracle *o, const struct oracle_snap *x);
