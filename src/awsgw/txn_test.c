/* Transactions of the gateway over a real store: who loses, and what a lock promises. */
#include "awsgw/txn.h"

#include "awsgw/store.h"
#include "awsgw/test_gw.h"
#include "base/test.h"
#include "base/time.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

static struct gw gw;

static struct txn *begin(struct arena *a)
{
    struct txn *t = arena_new_of(a, struct txn);
    txn_init(t, &gw, a);
    return t;
}

static void commit(struct txn *t, int want, const char *want_name)
{
    struct err err = ERR_INIT;
    assert_int_equal(txn_commit(t, &err), want);
    if (want_name) {
        assert_string_equal(err.name, want_name);
    }
}

static void test_a_claim_is_had_by_one(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct txn *one = begin(a), *two = begin(a);
    txn_claim(one, STR("claim/ip/subnet-1/10.0.0.4"), STR("eni-1"));
    txn_claim(two, STR("claim/ip/subnet-1/10.0.0.4"), STR("eni-2"));
    commit(one, 0, NULL);
    commit(two, -EAGAIN, NULL);
}

/* Whoever looked before the other committed must lose, whatever else the two write; also at the
 * very first use, when there is no key yet. */
static void test_of_two_that_hold_one_lock_the_second_loses(void **state)
{
    for (int round = 0; round < 3; round++) {
        AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
        struct txn *user = begin(a), *deleter = begin(a);
        txn_lock(user, STR("claim/sguse/vpc-1"));
        txn_lock(deleter, STR("claim/sguse/vpc-1"));
        txn_claim(user, arena_fmt(a, "claim/test/use-%d", round), STR("x"));
        txn_claim(deleter, arena_fmt(a, "claim/test/gone-%d", round), STR("x"));
        commit(round % 2 ? deleter : user, 0, NULL);
        commit(round % 2 ? user : deleter, -EAGAIN, NULL);
        struct txn *next = begin(a); /* it looks again: now it may */
        txn_lock(next, STR("claim/sguse/vpc-1"));
        commit(next, 0, NULL);
        struct txn *other = begin(a);
        txn_lock(other, STR("claim/sguse/vpc-2"));
        commit(other, 0, NULL);
    }
}

/* Holds the view in the middle of a transaction: its lock is seen, not yet all that it guards. */
static bool is_slow;

static void dawdle(void *ctx, const struct view_entry *old, const struct view_entry *now)
{
    if (__atomic_load_n(&is_slow, __ATOMIC_ACQUIRE) && now &&
        str_eqc(now->key, "claim/sguse/vpc-3")) {
        usleep(300000);
    }
}

static void *use_the_lock(void *arg)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct txn *t = begin(a);
    txn_lock(t, STR("claim/sguse/vpc-3"));
    txn_claim(t, STR("claim/aaa/guarded"), STR("x"));
    txn_claim(t, STR("claim/zzz/guarded"), STR("x"));
    commit(t, 0, NULL);
    return NULL;
}

static void test_who_sees_a_lock_taken_sees_what_was_written_with_it(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    pthread_t thread;
    __atomic_store_n(&is_slow, true, __ATOMIC_RELEASE);
    assert_int_equal(pthread_create(&thread, NULL, use_the_lock, NULL), 0);
    for (int i = 0; !store_has(&gw, STR("claim/sguse/vpc-3")); i++) {
        assert_true(i < 10000);
        usleep(1000);
    }
    struct txn *t = begin(a);
    txn_lock(t, STR("claim/sguse/vpc-3"));
    assert_true(store_has(&gw, STR("claim/aaa/guarded")));
    assert_true(store_has(&gw, STR("claim/zzz/guarded")));
    commit(t, 0, NULL);
    pthread_join(thread, NULL);
    __atomic_store_n(&is_slow, false, __ATOMIC_RELEASE);
}

/* A request over more records than one transaction takes is the user's error, not ours. */
static void test_too_many_records_are_refused_by_an_error_of_ec2(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct txn *t = begin(a);
    for (unsigned i = 0; i <= KV_MAX_OPS; i++) {
        txn_claim(t, arena_fmt(a, "claim/test/many-%u", i), STR("x"));
    }
    commit(t, -E2BIG, "ResourceCountExceeded");
    struct kv_item item;
    assert_int_equal(kv_get(gw.kv, a, STR("claim/test/many-0"), &item, NULL), -ENOENT);
}

static void test_a_name_cannot_reach_into_another_key(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"plain-Name_1.x", "plain-Name_1.x"},
        {"a/b", "a%2Fb"},
        {"..", ".."},
        {"100%", "100%25"},
        {"\xc3\xa4", "%C3%A4"},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_str(name_key(a, str_c(cases[i].name)), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_claim_is_had_by_one),
        cmocka_unit_test(test_of_two_that_hold_one_lock_the_second_loses),
        cmocka_unit_test(test_who_sees_a_lock_taken_sees_what_was_written_with_it),
        cmocka_unit_test(test_too_many_records_are_refused_by_an_error_of_ec2),
        cmocka_unit_test(test_a_name_cannot_reach_into_another_key),
    };
    struct tmpdir dir;
    if (!test_gw_open(&gw, &dir, "txn", dawdle)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    test_gw_close(&gw, &dir);
    return r;
}
