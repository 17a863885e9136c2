/* block_world.h — real spx-state, spx-predastore and spx-viperblock (with its data processes)
 *                 in a temporary folder; desired state is written as awsgw writes it.
 * Not here: tests.
 * Threads:  one.
 * Memory:   world_init(), world_done(). Asserts instead of errors. */
#pragma once
#include "viperblock/test_disk.h"

#include "base/arena.h"
#include "kv/kv.h"
#include "model/instance.h"
#include "model/volume.h"
#include "snap/snap.h"
#include "testkit/daemon.h"
#include "testkit/tmpdir.h"

#define ACCOUNT  "000000000001"
#define INSTANCE "i-00000000000000001"

enum world_service { WORLD_STATE, WORLD_STORE, WORLD_BLOCK, WORLD_N };
struct world {
    struct tmpdir dir;
    char config[PATH_MAX], data[PATH_MAX], run[PATH_MAX], block_sock[PATH_MAX];
    struct daemon *d[WORLD_N];
    struct kv *kv;
    struct arena *a;
};
/* argv of main: spx, spx-state, spx-predastore, spx-viperblock */
void world_init(struct world *w, char **argv);
/* Stops everything; data processes that are left are ended and counted. */
size_t world_done(struct world *w);
void world_start(struct world *w, enum world_service s);
void world_stop(struct world *w, enum world_service s);
void world_kill(struct world *w, enum world_service s);
void world_restart(struct world *w, enum world_service s);
/* SIGKILL to the data process of that name; false = there is none. */
bool world_kill_data(struct world *w, const char *name);
size_t world_n_processes(struct world *w);

struct volume world_volume(const char *id, uint64_t gib);
void world_put_volume(struct world *w, struct volume *v); /* generation + 1 */
void world_put_snapshot(struct world *w, const struct snapshot *s);
void world_put_image(struct world *w, const struct image *i);
void world_delete(struct world *w, const char *kind, const char *id); /* the record */
/* "pending", "completed", ...; fails the test after 60 s. */
struct snapshot_status world_wait_snapshot(struct world *w, const char *id, const char *state);
struct volume_status world_wait_volume(struct world *w, const char *id, const char *state);
struct snapshot world_snapshot_rec(const char *id, const char *volume);
void world_wait_started(struct world *w, const char *id); /* it has its point in time */
void world_modify(struct world *w, struct volume *v,
                  uint64_t gib); /* and waits for "completed" */
void world_snapshot(struct world *w, const char *id,
                    const char *volume); /* put and completed */
void world_delete_snapshot(struct world *w, const char *id, const char *volume);
void world_delete_volume(struct world *w, struct volume *v);
struct str world_get(struct world *w, struct str key);

int world_call(struct world *w, const char *method, const char *args, int fd, struct str *ret,
               int *ret_fd, struct err *err);
void world_open(struct world *w, const char *volume, const char *instance,
                struct test_disk *ret);
void world_close(struct world *w, const char *volume, const char *instance,
                 struct test_disk *d);

/* What the store of snapshots holds, after everything that nobody needs was collected. The
 * block service is stopped for it and started again. */
struct snap_usage world_usage(struct world *w);
/* Objects of snapshots in the store, of all kinds (but keys): nothing is collected for it. */
size_t world_objects(struct world *w);
size_t world_count(struct world *w, const char *sub); /* entries, hidden ones too */
uint64_t world_allocated(struct world *w, const char *kind, const char *id); /* of its data */
/* Everything below data/viperblock and run/viperblock is removed, but the root key. */
void world_wipe_node(struct world *w);
void world_sh(const char *text);
/* True when some file below the folder has the bytes. */
bool world_has_bytes(const char *folder, const void *p, size_t n);
