/* compute_world.h — for compute_test.c: real services, stand-ins for two others, and records.
 * Not here: the tests.
 * Threads:  the stand-ins answer on a thread of their own; the rest belongs to the test's.
 * Memory:   one struct world at a time; tear_down() ends it, also after a failed test.
 * Errors:   a test is ended with a message. */
#pragma once
#include "base/test.h"
#include "base/time.h"
#include "compute/test_disk.h"
#include "kv/kv.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/network.h"
#include "model/node.h"
#include "model/volume.h"
#include "net/rpc.h"
#include "testkit/daemon.h"
#include "testkit/tmpdir.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define ACCOUNT "111122223333"
#define WAIT_NS (UINT64_C(40) * NS_PER_S)

struct world {
    struct tmpdir dir;
    char config[PATH_MAX], state_sock[PATH_MAX], compute_sock[PATH_MAX];
    const char *state_argv[4], *compute_argv[20];
    struct daemon *state, *compute;
    struct kv *kv;
    struct rpc_client *rpc;
    struct loop *loop;
    pthread_t thread;
    struct rpc_server *block, *net;
    atomic_bool is_block_broken, is_link_down;
    atomic_uint n_taps;
    struct test_disks disks; /* the loop thread's while it runs */
    uint64_t n_ids;
    uint64_t uid_base;
};

struct vm {
    char id[32], root[32], eni[32];
};

/* Set by main(). */
extern const char *state_exe, *compute_exe, *sector, *disk_server;

#define WAIT_UNTIL(what, cond)                                                       \
    do {                                                                             \
        uint64_t until_ = time_mono_ns() + WAIT_NS;                                  \
        while (!(cond)) {                                                            \
            if (time_mono_ns() > until_) {                                           \
                fail_msg("line %d: %s: never came true: %s", __LINE__, what, #cond); \
            }                                                                        \
            (void)usleep(30000);                                                     \
        }                                                                            \
    } while (0)

void world_init(struct world *w, uint64_t uid_base);
uint64_t guest_num(struct world *w, const char *id, const char *member);
int tear_down(void **state);
bool get(struct world *w, struct arena *a, struct str key, const struct rec_desc *d, void *rec);
void put(struct world *w, struct arena *a, struct str key, const struct rec_desc *d,
         const void *rec);
void put_volume(struct world *w, const char *id, const char *instance, const char *device,
                const char *want, bool is_forced, bool is_available);
void make_volume(struct world *w, const char *id, bool is_bootable);
void change(struct world *w, const char *id, const char *want, bool is_forced, bool is_reboot);
void launch(struct world *w, struct vm *vm, const char *behavior, uint64_t n_vcpus,
            bool is_available);
struct instance_status status(struct world *w, struct arena *a, const char *id);
bool is_state(struct world *w, const char *id, const char *state);
void wait_state(struct world *w, const char *id, const char *state);
bool is_attachment(struct world *w, const char *volume, const char *state, uint64_t *slot);
size_t console_count(struct world *w, const char *id, const char *what);
bool try_type(struct world *w, const char *id, char byte);
void type(struct world *w, const char *id, char byte);
void run(struct world *w, struct vm *vm, const char *behavior);
bool has_run_folder(struct world *w, const char *id);
uid_t owner_of(uint64_t pid);
