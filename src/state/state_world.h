/* state_world.h — a real spx-state with its store in a folder of the test, for the tests of
 * this room.
 * Not here: the tests.
 * Threads:  of the test.
 * Memory:   world_init() fills, world_done() ends the process (which must end well) and removes
 *           the folder.
 * Errors:   fail the test. */
#pragma once
#include "base/test.h"

#include "../../tests/kv_contract.h"
#include "base/time.h"
#include "kv/kv.h"
#include "testkit/daemon.h"
#include "testkit/tmpdir.h"

#include <limits.h>

#define WAIT_NS (20 * NS_PER_S)

struct world {
    struct tmpdir dir;
    char sock[PATH_MAX], config[PATH_MAX], log[PATH_MAX];
    const char *argv[4];
    struct daemon *d;
};

/* argv[1] of the test: the executable. */
extern const char *world_exe;

void world_init(struct world *w);
/* With a uid_base, and a data folder of the caller's (NULL = in the folder of the test). */
void world_init_as(struct world *w, unsigned uid_base, const char *data_dir);
void world_done(struct world *w);
struct kv *world_open(const struct world *w, const char *service);
int world_put(struct kv *kv, const char *key, const char *value, struct err *err);
bool world_has(struct kv *kv, const char *key, const char *value);
/* A request with a JSON payload and, when fd >= 0, a descriptor. */
int world_ask(const struct world *w, const char *method, const char *payload, int fd,
              char **ret, struct err *err);
