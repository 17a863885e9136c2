/* kv_contract_int.h — what the files of the contract share.
 * Not here: what tests of back ends use (kv_contract.h).
 * Threads:  of the test.
 * Memory:   as kv_contract.h.
 * Errors:   a broken rule fails the cmocka test that called it. */
#pragma once
#include "base/time.h"
#include "kv_contract.h"

#define WAIT_NS (20 * NS_PER_S) /* for what must come */

/* Needs a 'struct err err' in scope. */
#define assert_ok(x)                                                                \
    do {                                                                            \
        int ok_r_ = (x);                                                            \
        if (ok_r_ < 0) {                                                            \
            fail_msg("%s: %d %s %s", #x, ok_r_, err.name ? err.name : "", err.msg); \
        }                                                                           \
    } while (0)

void assert_err(int r, int code, const struct err *err, const char *name);
void pause_ms(unsigned ms);
void assert_absent(struct kv *kv, const char *key);
/* See kv_recorder_text(). */
void assert_seen(struct kv_recorder *r, const char *want);
int kv_test_get(struct kv *kv, struct arena *a, const char *key, struct kv_item *ret,
                struct err *err);

/* kv_contract_watch.c */
void rule_watch(struct kv *kv);
void rule_watch_from(struct kv *kv);
void rule_watch_big(struct kv *kv);
void rule_watch_stops_itself(struct kv *kv);
void rule_leases(struct kv *kv);
void rule_lease_many(struct kv *kv);
