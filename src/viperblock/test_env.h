/* test_env.h — the service inside a test's process: a store in a file, the loop in a thread, a
 * client on its socket.
 * Not here: anything the service uses.
 * Threads:  the test's own.
 * Memory:   struct env is the test's; env_stop() and env_start() again = a clean restart over
 *           the same files.
 * Errors:   assertions of cmocka; the path of the helper comes from the command line
 *           (env_init()). */
#pragma once
#include "base/test.h"

#include "base/arena.h"
#include "model/instance.h"
#include "model/volume.h"
#include "net/rpc.h"
#include "testkit/tmpdir.h"
#include "viperblock/test_disk.h"
#include "viperblock/vb.h"
#include <limits.h>
#include <pthread.h>

#define TEST_ACCOUNT "000000000001"

struct env {
    char dir[PATH_MAX], data[PATH_MAX], run[PATH_MAX], socket[PATH_MAX], db[PATH_MAX];
    uint64_t max_image_size;
    struct kv *kv;
    struct loop *loop;
    struct vb *vb;
    struct rpc_client *rpc;
    pthread_t thread;
    struct arena *a;
    unsigned n_events; /* progress events seen */
};

/* Of spx-viperblock-import and spx-viperblock-data. */
void env_helper(const char *import_exe, const char *data_exe);
void env_init(struct env *e, const char *dir);
void env_start(struct env *e);
void env_stop(struct env *e);

/* Desired state, as awsgw writes it. */
void env_put_volume(struct env *e, const struct volume *v);
/* Waits until status/volume shows the state (and the generation, when it is not 0); fails the
 * test after 60 s. Returns it. */
const struct volume_status *env_wait_volume(struct env *e, const char *id, const char *state);
/* NULL when absent. */
const struct image *env_get_image(struct env *e, const char *id);
/* "" when the key is absent. */
struct str env_get(struct env *e, struct str key);

/* Calls image.import for the file; 'more' is further JSON members or "". Returns the code; *err
 * gets name and message. */
int env_import(struct env *e, const char *path, const char *name, const char *more,
               char ret_id[32], struct err *err);
/* volume.open, and the guest's end of it. */
int env_open(struct env *e, const char *volume_id, const char *instance_id,
             struct test_disk *ret, struct err *err);
int env_close(struct env *e, const char *volume_id, const char *instance_id, bool is_forced,
              struct err *err);
/* Any method, its answer as text in the arena. */
int env_call(struct env *e, const char *method, const char *args, struct str *ret,
             struct err *err);
/* Opens the volume for an instance, compares, lets go of it. */
void env_volume_equals(struct env *e, const char *volume_id, const char *instance_id,
                       const char *path);
/* Number of data processes that have a folder in this environment; ends them all. */
size_t env_n_processes(struct env *e);
void env_end_processes(struct env *e);

/* "volumes", "images", "trash": number of entries, hidden ones too. */
size_t env_count(struct env *e, const char *sub);
/* True when both files have the same bytes up to the size of the first and the second is zero
 * behind. */
bool same_bytes(const char *a, const char *b);
/* A raw disk of 'mib' with a boot signature and data here and there. */
void make_disk(const char *path, unsigned mib);
/* Runs "sh -c TEXT" in the folder; fails the test when it fails. */
void sh(const char *dir, const char *text);
