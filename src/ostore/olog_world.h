/* olog_world.h — drives in a temporary folder, a log on them, and a memory of what was promised.
 * Not here: the tests themselves.
 * Threads:  one, but for tests that say so.
 * Memory:   world_new() gives, world_free() takes.
 * Errors:   what a test expects is checked by the test; surprises abort it. */
#pragma once
#include "base/fault_sim.h"
#include "base/vec.h"
#include "ostore/olog.h"

enum rec_fate {
    FATE_TRIED,
    FATE_FAILED,
    FATE_ACKED,
    FATE_GONE /* a start did not show it: never again */
};
struct world_rec {
    uint64_t lsn, serial, group; /* group: serial of its first record; 0: none */
    enum rec_fate fate;
};

struct world {
    char base[64], root[128];
    unsigned n, copies;
    uint32_t segment_size;
    struct fault_sim *sim; /* NULL: the system's files, or 'fs' */
    struct fault_fs *fs;
    uint64_t stall_ns;
    struct drives *d;
    struct olog *l;
    uint64_t serial;
    VEC(struct world_rec) recs; /* all that were ever tried */
    VEC(struct world_rec) seen; /* of the last start */
    unsigned n_cuts;
    struct err err;
};

/* n drives; 'has_sim': behind the simulator. Nothing is opened. */
struct world *world_new(unsigned n, unsigned copies, bool has_sim);
void world_free(struct world *w);
/* Opens drives and log and reads everything back; checks every record against the memory. */
MUST_CHECK int world_open(struct world *w, uint64_t from_lsn);
void world_close(struct world *w);
/* 'n' records of 'size' bytes of body; as one group or not. Not synced. */
MUST_CHECK int world_append(struct world *w, unsigned n, size_t size, bool is_group);
/* The same, synced and promised at once. */
MUST_CHECK int world_commit(struct world *w, unsigned n, size_t size, bool is_group);
/* Syncs; what was tried so far is promised then. */
MUST_CHECK int world_sync(struct world *w);
/* After world_open(): nothing promised is missing, groups are whole, order is that of lsns. NULL or
 * what is wrong. */
const char *world_check(struct world *w);
/* Power cut: goes on in a new folder with what is durable and a choice of the rest. The log is
 * closed first; with 'lost' drives (bits) emptied. */
void world_cut(struct world *w, const struct fault_cut *cut, uint32_t lost);
void world_path(const struct world *w, unsigned drive, const char *rest, char out[256]);
/* Name of a drive's newest (or oldest) segment. */
bool world_segment(const struct world *w, unsigned drive, bool is_newest, char out[256]);
void world_remove(const char *path);            /* with all that is in it */
void world_need(int rc, const struct world *w); /* the test ends when rc is an error */
/* Appends until there are that many segments; returns how many there are. */
size_t world_fill_segments(struct world *w, size_t want);
