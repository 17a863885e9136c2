/* fault_sim.h — a file system behind fault.h that fails on request and loses power, for tests.
 * Not here: services. Nothing but tests links it.
 * Threads:  calls through the door from any thread; plan and cut while nothing else runs.
 * Memory:   fault_sim_new() gives; unsynced writes and the synced state of every file are held in
 *           memory (at most FAULT_SIM_MAX_SIZE, then -ENOMEM).
 * Errors:   negative errno; *err filled by new and cut.
 *
 * How it works: calls run on a real folder ("live"), so reads see what a program sees. Beside it
 * stand what is durable (contents of files, names of folders) and a journal of the operations
 * that no sync has covered. A sync of a file makes that file's data durable, a sync of a folder the
 * names in it, and neither does the other's. fault_sim_cut() writes another folder: what is durable
 * plus a choice from the journal. The live folder stays as it is, so one moment can be cut in many
 * ways; open the other folder with a new simulator, or with none, and look.
 *
 * A cut may keep any subset of unsynced operations, in their order, and tear writes and holes at
 * aligned sectors of 512 bytes or blocks of 4 KiB; a file may have grown without its data
 * (zeros). Names are not torn: a rename happened or not. Real file systems lose less.
 *
 * After a sync failed, that file or folder never becomes durable again: further syncs of it answer
 * -EIO and are counted in fault_sim_n_resyncs(), which a test wants to be 0. */
#pragma once
#include "base/err.h"
#include "base/fault.h"

#define FAULT_SIM_MAX_SIZE (UINT64_C(1) << 30)

struct fault_sim;

/* What is in the folder 'root' (files and folders only) is durable. */
struct fault_sim *fault_sim_new(const char *root, struct err *err);
void fault_sim_free(struct fault_sim *s); /* NULL is fine; the folder stays */
DEFINE_CLEANUP(struct fault_sim *, fault_sim_free);
struct fault_fs *fault_sim_fs(struct fault_sim *s); /* borrowed */

enum fault_effect {
    FAULT_NOTHING_DONE,
    FAULT_HALF_DONE, /* a write: the first half of its bytes; others: nothing */
    FAULT_ALL_DONE,  /* done, but the caller is told that it failed */
};

#define FAULT_BIT(op) (1u << (op))
#define FAULT_SYNCS \
    (FAULT_BIT(FAULT_FDATASYNC) | FAULT_BIT(FAULT_FSYNC) | FAULT_BIT(FAULT_SYNC_DIR))

struct fault_plan {
    uint64_t at;  /* the call that fails, from 1; 0: none */
    int code;     /* negative errno */
    uint32_t ops; /* FAULT_BIT() of the calls that count; 0: all */
    enum fault_effect effect;
    bool
        is_dead; /* every call of any kind after it fails too, and does nothing: the power is off */
};

/* Begins to count anew. plan == NULL: only count. */
void fault_sim_plan(struct fault_sim *s, const struct fault_plan *plan);
uint64_t fault_sim_n_calls(
    const struct fault_sim *s); /* since the last plan, those that count */
bool fault_sim_has_failed(const struct fault_sim *s); /* the planned call came */

uint32_t fault_sim_n_unsynced(const struct fault_sim *s); /* operations in the journal */
uint32_t fault_sim_n_resyncs(const struct fault_sim *s);

enum fault_cut_kind {
    FAULT_CUT_SYNCED, /* only what is durable */
    FAULT_CUT_ALL,    /* everything: as after kill -9 */
    FAULT_CUT_NAMES,  /* all names, no unsynced data */
    FAULT_CUT_DATA,   /* all data, no unsynced names */
    FAULT_CUT_SUBSET, /* operation i of the journal if bit i % 64 of 'mask' is set */
    FAULT_CUT_RANDOM, /* by 'seed': each operation whole, not at all, or torn */
};

struct fault_cut {
    enum fault_cut_kind kind;
    uint64_t mask, seed;
};

/* Writes the folder as it is after a power cut to 'dest', which must not exist. */
MUST_CHECK int fault_sim_cut(struct fault_sim *s, const struct fault_cut *cut, const char *dest,
                             struct err *err);
