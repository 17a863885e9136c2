/* kv_contract.h — what every back end of kv.h has to do, as a test that runs against any struct
 * kv.
 * Not here: what belongs to one back end (kv_sqlite_test.c, state_test.c).
 * Threads:  uses many; returns when all have ended.
 * Memory:   keys are made under names of their own, so the store need not be empty.
 * Errors:   a broken rule fails the cmocka test that called it. */
#pragma once
#include "kv/kv.h"

void kv_contract(struct kv *kv);

/* Remembers what a watch delivered. */
struct kv_seen {
    int type;
    char key[64];
    char value[64]; /* the first bytes */
    size_t value_n;
    uint64_t mod_rev, create_rev;
};
struct kv_recorder;
struct kv_recorder *kv_recorder_new(void);
void kv_recorder_free(struct kv_recorder *r);
void kv_recorder_fn(void *ctx, const struct kv_event *ev); /* kv_watch_fn */
/* Waits until a SYNC of 'rev' or later has been seen; fails the test after 20 s. */
void kv_recorder_wait(struct kv_recorder *r, uint64_t rev);
/* Waits until a RESET was seen. */
void kv_recorder_wait_reset(struct kv_recorder *r);
size_t kv_recorder_n(struct kv_recorder *r);
struct kv_seen kv_recorder_at(struct kv_recorder *r, size_t i);
void kv_recorder_clear(struct kv_recorder *r);
/* As text, "RESET PUT a=1 SYNC"; revisions left out; SYNCs that follow one another once. free()
 * it. */
char *kv_recorder_text(struct kv_recorder *r);

/* Opens a store in a file; fails the test when it cannot. */
struct kv *kv_test_open(const char *path);
bool kv_test_has(struct kv *kv, const char *key, const char *value);
/* One operation. */
uint64_t kv_test_put(struct kv *kv, const char *key, const char *value);
uint64_t kv_test_delete(struct kv *kv, const char *key);
